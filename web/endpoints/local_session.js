// A model in use: its engine, its unfinished requests, and a new engine when that one is lost.
//
// Counterparts: worker_link.js (one engine in its worker), pending_request.js (a request and what was told of
// it), recovery.js (when to start again). Not a scheduler: every request is passed on at once, and the engine
// decides when it runs.

import { turnToCpu } from "../backend_choice.js";
import { deferred } from "../deferred.js";
import { HeadraceError } from "../errors.js";
import { PendingRequest } from "./pending_request.js";
import { exhausted, isWorthRestart, MAX_RESTARTS, Recovery, whyCpuInstead } from "./recovery.js";
import { WorkerLink } from "./worker_link.js";

/** @import { BackendChoice } from "../backend_choice.js" */
/** @import { WireError } from "../errors.js" */
/** @import { RunFeed } from "../run.js" */
/** @import { ModelOrigin, OperationRequest, ReadyEvent } from "../worker/protocol.js" */
/** @import { StoreOptions, WorkerEvent } from "../worker/protocol.js" */
/** @import { Capabilities } from "./endpoint.js" */
/** @import { LocalPlan } from "./local.js" */

/**
 * A plan, with what the client adds.
 * @typedef {Omit<LocalPlan, "store"> & {store: StoreOptions}} SessionPlan
 */

/** Made by `client.add` for an `Endpoint.local`; applications pass it to the client's operations. */
export class LocalSession {
  kind = "local";

  #plan;
  #choice;
  /** @type {WorkerLink} */ #link;
  /** Whether the engine of #link takes requests. */
  #isReady = false;
  /** @type {Map<number, PendingRequest>} */ #unfinished = new Map();
  #nextRequestId = 1;
  /** @type {ReturnType<typeof deferred<void>>} settled by the first of: ready, a failure, a cancel */
  #opening = deferred();
  /** @type {ReadyEvent | null} of the latest engine that was ready */ #ready = null;
  /** @type {ModelOrigin | null} */ #source = null;
  /** @type {readonly string[]} of the store */ #sourceReasons = [];
  #recovery = new Recovery();
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #pause;
  /** @type {Promise<void> | null} */ #closing = null;
  /** @type {HeadraceError | null} why there will be no engine any more */ #end = null;

  /**
   * Starts a worker, the engine and the model.
   * @param {string} id
   * @param {SessionPlan} plan
   * @param {BackendChoice} choice
   * @param {AbortSignal} signal
   * @returns {Promise<LocalSession>} ready for requests
   */
  static async open(id, plan, choice, signal) {
    const signals = [signal, ...(plan.signal ? [plan.signal] : [])];
    for (const one of signals) if (one.aborted) throw cancelled(one);

    const session = new LocalSession(id, plan, choice);
    // Loading blocks the worker, so it could not read a cancel command: it is terminated instead.
    const listening = signals.map((one) => {
      const abort = () => session.#finish(cancelled(one));
      one.addEventListener("abort", abort);
      return () => one.removeEventListener("abort", abort);
    });
    try {
      await session.#opening.promise;
    } finally {
      for (const stopListening of listening) stopListening();
    }
    return session;
  }

  /**
   * @param {string} id
   * @param {SessionPlan} plan
   * @param {BackendChoice} choice
   */
  constructor(id, plan, choice) {
    this.id = id;
    this.#plan = plan;
    this.#choice = choice;
    this.#link = this.#startEngine();
  }

  /** The worker of now; for tests only. */
  get _worker() {
    return this.#link.worker;
  }

  /** @returns {WorkerLink} */
  #startEngine() {
    const { artifactsUrl, files, store, load: options, gpu } = this.#plan;
    const { artifact, threads, gpu: chosen } = this.#choice;
    const link = new WorkerLink(`headrace ${this.id}`, {
      receive: (events) => this.#receive(events),
      lose: (error) => this.#lose(error),
    });
    const command = { artifactsUrl, artifact, threads, files, store, options };
    link.open({ ...command, gpu: chosen && { ...chosen, ...gpu } });
    return link;
  }

  /** @returns {Capabilities} */
  capabilities() {
    if (!this.#ready || !this.#source)
      throw new HeadraceError("internal", `the endpoint "${this.id}" is not ready`);
    const { model, operations, options, memory, heapBytes, storage, backend } = this.#ready;
    const { artifact, threads } = this.#choice;
    const reasons = this.#reasons(this.#recovery.reasons());
    const runs = { backend, gpu: this.#gpu, artifact, threads, memory, heapBytes, storage, reasons };
    return { kind: "local", operations, model, source: this.#source, options, ...runs };
  }

  /** @returns {Capabilities["gpu"]} */
  get #gpu() {
    const { gpu: use } = this.#ready ?? {};
    return use && this.#choice.gpu ? { ...use, adapter: this.#choice.gpu.adapter } : null;
  }

  /**
   * @param {readonly string[]} restarts
   * @returns {readonly string[]}
   */
  #reasons(restarts) {
    return [...this.#choice.reasons, ...this.#sourceReasons, ...(this.#ready?.reasons ?? []), ...restarts];
  }

  /**
   * What the model cannot do is refused by the engine, which knows the model.
   * @param {OperationRequest} request
   * @param {RunFeed<any, any>} feed
   * @returns {() => void} cancels the request
   */
  start(request, feed) {
    if (this.#end) throw HeadraceError.fromWire(this.#end.toWire());
    const pending = new PendingRequest(this.#nextRequestId++, request, feed);
    this.#unfinished.set(pending.id, pending);
    if (this.#isReady) this.#link.send({ type: "submit", request: pending.json });
    return () => this.#cancel(pending);
  }

  /** @param {PendingRequest} pending */
  #cancel(pending) {
    if (!this.#unfinished.has(pending.id)) return;
    pending.isCancelled = true;
    if (this.#isReady) this.#link.send({ type: "cancel", id: pending.id });
    else this.#endCancelled(pending);
  }

  /** @returns {Promise<void>} resolves when the engine has gone */
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    if (this.#end) return;
    const couldRead = this.#isReady;
    this.#fail(new HeadraceError("engine_closed", `the endpoint "${this.id}" was closed`));
    if (couldRead) await this.#link.close();
    else this.#link.terminate();
  }

  /** @param {WorkerEvent[]} events of one tick */
  #receive(events) {
    const [failure] = events.flatMap((event) => (event.type === "engine_failed" ? [event.error] : []));
    for (const event of events) {
      // An engine that fails tells every request so; whether they have failed is decided here.
      const isOfEngine = event.type === "failed" && failure !== undefined && isSame(event.error, failure);
      if (!isOfEngine) this.#handle(event);
    }
  }

  /** @param {WorkerEvent} event */
  #handle(event) {
    switch (event.type) {
      case "progress": {
        const { type, ...progress } = event;
        this.#plan.onProgress(progress);
        break;
      }
      case "opened":
        this.#source = event.source;
        this.#sourceReasons = event.reasons;
        break;
      case "ready":
        this.#takeOver(event);
        break;
      case "accepted":
        this.#unfinished.get(event.id)?.accept({ options: event.options, promptTokens: event.promptTokens });
        break;
      case "tokens": {
        const { type, id, ...batch } = event;
        this.#unfinished.get(id)?.push(batch);
        break;
      }
      case "done": {
        const pending = this.#take(event.id);
        if (pending && !pending.isCancelled) this.#recovery.completed();
        pending?.done(event.result, this.id, this.#reasonsOf(pending));
        break;
      }
      case "failed":
        // An id of 0 is of a command that the engine could not read: whose it was is not known.
        if (event.id === 0) this.#finish(HeadraceError.fromWire(event.error));
        this.#take(event.id)?.fail(HeadraceError.fromWire(event.error));
        break;
      case "engine_failed":
        this.#lose(HeadraceError.fromWire(event.error));
        break;
    }
  }

  /**
   * An engine is ready: of a new session, or instead of one that was lost, whose requests it goes on with.
   * @param {ReadyEvent} ready
   */
  #takeOver(ready) {
    this.#ready = ready;
    this.#isReady = true;
    this.#opening.resolve(undefined);
    for (const pending of this.#unfinished.values()) {
      this.#link.send({ type: "submit", request: pending.writeAgain() });
    }
  }

  /** @param {number} id */
  #take(id) {
    const pending = this.#unfinished.get(id);
    this.#unfinished.delete(id);
    return pending;
  }

  /** @param {PendingRequest} pending */
  #reasonsOf(pending) {
    return this.#reasons(this.#recovery.reasons(pending.restarts));
  }

  /** @param {PendingRequest} pending */
  #endCancelled(pending) {
    if (!this.#ready) return;
    const { backend, artifact } = this.#ready;
    this.#unfinished.delete(pending.id);
    pending.endCancelled(this.id, this.#reasonsOf(pending), {
      ...{ backend, artifact },
      threads: this.#choice.threads,
    });
  }

  /**
   * The engine is gone: another one is started and goes on with what is unfinished, unless that has been
   * tried often enough.
   * @param {HeadraceError} error
   */
  #lose(error) {
    if (this.#end) return;
    this.#link.terminate();
    const worked = this.#isReady;
    this.#isReady = false;
    if (!this.#ready || (worked && !isWorthRestart(error))) return this.#finish(error);

    const pause = this.#recovery.lose(error) ?? this.#replaceEngine(error);
    if (pause === null) return this.#finish(exhausted(error));
    for (const pending of this.#unfinished.values()) {
      if (pending.isCancelled) this.#endCancelled(pending);
      else if (pending.restarts === MAX_RESTARTS) this.#take(pending.id)?.fail(exhausted(error));
      else pending.restarts++;
    }
    this.#pause = setTimeout(() => this.#restart(), pause);
  }

  /**
   * A GPU that was not asked for by name is given up for the CPU, where everything may be tried anew.
   * @param {HeadraceError} error
   * @returns {number | null} milliseconds until then; null when there is nothing to change to
   */
  #replaceEngine(error) {
    if (this.#ready?.backend !== "webgpu" || !this.#choice.gpu || this.#choice.gpu.required) return null;
    this.#choice = turnToCpu(this.#choice, whyCpuInstead(error));
    this.#recovery.replaceEngine(error);
    for (const pending of this.#unfinished.values()) pending.restarts = 0;
    return 0;
  }

  #restart() {
    try {
      this.#link = this.#startEngine();
    } catch (error) {
      this.#lose(HeadraceError.from(error, "internal", "the engine could not be restarted"));
    }
  }

  /**
   * Ends the session for good, with the worker.
   * @param {HeadraceError} error
   */
  #finish(error) {
    this.#link.terminate();
    this.#fail(error);
  }

  /** @param {HeadraceError} error */
  #fail(error) {
    if (this.#end) return;
    this.#end = error;
    this.#isReady = false;
    clearTimeout(this.#pause);
    this.#opening.reject(error);
    const unfinished = [...this.#unfinished.values()];
    this.#unfinished.clear();
    for (const pending of unfinished) pending.fail(error);
  }
}

/** @param {AbortSignal} signal */
function cancelled(signal) {
  if (signal.reason instanceof HeadraceError) return signal.reason;
  return new HeadraceError("cancelled", "adding the endpoint was cancelled", { cause: signal.reason });
}

/**
 * @param {WireError} one
 * @param {WireError} other
 */
function isSame(one, other) {
  return one.code === other.code && one.message === other.message;
}
