// A model in use: the page's end of one worker, with its unfinished requests.
//
// Counterpart: worker/engine_worker.js; the messages are told in worker/protocol.js. Not a scheduler: every
// request is passed on at once, and the engine decides when it runs.

import { deferred } from "../deferred.js";
import { HeadraceError } from "../errors.js";
import { writeRequest } from "./request_json.js";

/** @import { BackendChoice } from "../backend_choice.js" */
/** @import { RunFeed } from "../run.js" */
/** @import { Command, ModelOrigin, OperationRequest, ReadyEvent } from "../worker/protocol.js" */
/** @import { StoreOptions, WorkerEvent, WorkerMessage } from "../worker/protocol.js" */
/** @import { Capabilities } from "./endpoint.js" */
/** @import { LocalPlan } from "./local.js" */

/**
 * A plan, with what the client adds.
 * @typedef {Omit<LocalPlan, "store"> & {store: StoreOptions}} SessionPlan
 */

/** How long a closing worker may take to finish its step and free the engine before it is terminated. */
const CLOSE_GRACE_MS = 2000;

/** Made by `client.add` for an `Endpoint.local`; applications pass it to the client's operations. */
export class LocalSession {
  kind = "local";
  /** The worker itself; for tests only. */
  _worker;

  #plan;
  #choice;
  /** @type {Map<number, RunFeed<any, any>>} */ #unfinished = new Map();
  #nextRequestId = 1;
  /** @type {ReturnType<typeof deferred<ReadyEvent>>} settled by the first of: ready, a failure, a cancel */
  #opening = deferred();
  /** @type {ReadyEvent | null} */ #ready = null;
  /** @type {ModelOrigin | null} */ #source = null;
  /** @type {readonly string[]} */ #reasons;
  #closed = deferred();
  /** @type {Promise<void> | null} */ #closing = null;
  /** @type {HeadraceError | null} why there is no engine any more */ #end = null;
  #lock = `headrace-worker-${Date.now()}-${Math.random()}`;
  /** @type {AbortController | null} */ #lockWatch = null;

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
    this.#reasons = choice.reasons;

    const script = new URL("../worker/engine_worker.js", import.meta.url);
    this._worker = startWorker(script, `headrace ${id}`);
    this._worker.onmessage = (/** @type {MessageEvent<WorkerMessage>} */ { data }) => this.#receive(data);
    this._worker.onerror = (event) => {
      event.preventDefault();
      this.#finish(crashed(event.message || `${script.href} could not be started`));
    };
    this._worker.onmessageerror = () => this.#finish(crashed("it sent a message that could not be read"));
    this.#send({
      type: "open",
      artifactsUrl: plan.artifactsUrl,
      artifact: choice.artifact,
      threads: choice.threads,
      files: plan.files,
      store: plan.store,
      options: plan.load,
      gpu: choice.gpu && { ...choice.gpu, ...plan.gpu },
      lock: this.#lock,
    });
  }

  /** @returns {Capabilities} */
  capabilities() {
    if (!this.#ready || !this.#source)
      throw new HeadraceError("internal", `the endpoint "${this.id}" is not ready`);
    const { model, operations, options, memory, heapBytes, storage, backend } = this.#ready;
    const { artifact, threads } = this.#choice;
    const [source, reasons, gpu] = [this.#source, this.#reasons, this.#gpu];
    const runs = { backend, gpu, artifact, threads, memory, heapBytes, storage, reasons };
    return { kind: "local", operations, model, source, options, ...runs };
  }

  /** @returns {Capabilities["gpu"]} */
  get #gpu() {
    const { gpu: use } = this.#ready ?? {};
    return use && this.#choice.gpu ? { ...use, adapter: this.#choice.gpu.adapter } : null;
  }

  /**
   * What the model cannot do is refused by the engine, which knows the model.
   * @param {OperationRequest} request
   * @param {RunFeed<any, any>} feed
   * @returns {() => void} cancels the request
   */
  start(request, feed) {
    if (this.#end) throw HeadraceError.fromWire(this.#end.toWire());
    const id = this.#nextRequestId++;
    this.#send({ type: "submit", request: writeRequest({ id, ...request }) });
    this.#unfinished.set(id, feed);
    return () => {
      if (this.#unfinished.has(id)) this.#send({ type: "cancel", id });
    };
  }

  /** @returns {Promise<void>} resolves when the engine has gone */
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    if (this.#end) return;
    this.#fail(new HeadraceError("engine_closed", `the endpoint "${this.id}" was closed`));
    this.#send({ type: "close" });
    const grace = setTimeout(() => this.#closed.resolve(undefined), CLOSE_GRACE_MS);
    await this.#closed.promise;
    clearTimeout(grace);
    this._worker.terminate();
  }

  /** @param {Command} command */
  #send(command) {
    this._worker.postMessage(command);
  }

  /** @param {WorkerMessage} message */
  #receive({ events }) {
    this.#watchLock();
    for (const event of events) this.#handle(event);
  }

  /** @param {WorkerEvent} event */
  #handle(event) {
    switch (event.type) {
      case "progress": {
        const { type, ...progress } = event;
        if (!this.#end) this.#plan.onProgress(progress);
        break;
      }
      case "opened":
        this.#source = event.source;
        this.#reasons = [...this.#choice.reasons, ...event.reasons];
        break;
      case "ready":
        this.#ready = event;
        this.#reasons = [...this.#reasons, ...event.reasons];
        this.#opening.resolve(event);
        break;
      case "accepted":
        this.#unfinished.get(event.id)?.accept({ options: event.options, promptTokens: event.promptTokens });
        break;
      case "tokens": {
        const { type, id, ...batch } = event;
        this.#unfinished.get(id)?.push(batch);
        break;
      }
      case "done":
        this.#take(event.id)?.done({
          ...event.result,
          endpoint: this.id,
          requestId: event.id,
          reasons: this.#reasons,
        });
        break;
      case "failed":
        // An id of 0 is of a command that the engine could not read: whose it was is not known.
        if (event.id === 0) this.#finish(HeadraceError.fromWire(event.error));
        this.#take(event.id)?.fail(HeadraceError.fromWire(event.error));
        break;
      case "engine_failed":
        this.#finish(HeadraceError.fromWire(event.error));
        break;
      case "closed":
        this.#closed.resolve(undefined);
        break;
    }
  }

  /** @param {number} id */
  #take(id) {
    const feed = this.#unfinished.get(id);
    this.#unfinished.delete(id);
    return feed;
  }

  /**
   * A terminated worker raises no event, but the browser passes its lock on. The worker holds it before it
   * sends its first message; without Web Locks (insecure pages) a killed worker goes unnoticed.
   */
  #watchLock() {
    if (this.#lockWatch || this.#end || !navigator.locks) return;
    this.#lockWatch = new AbortController();
    navigator.locks
      .request(this.#lock, { signal: this.#lockWatch.signal }, () =>
        this.#finish(crashed("it was terminated")),
      )
      .catch(() => {});
  }

  /**
   * Ends the session for good, with the worker.
   * @param {HeadraceError} error
   */
  #finish(error) {
    this._worker.terminate();
    this.#closed.resolve(undefined);
    this.#fail(error);
  }

  /** @param {HeadraceError} error */
  #fail(error) {
    if (this.#end) return;
    this.#end = error;
    this.#lockWatch?.abort();
    this.#opening.reject(error);
    const feeds = [...this.#unfinished.values()];
    this.#unfinished.clear();
    for (const feed of feeds) feed.fail(HeadraceError.fromWire(error.toWire()));
  }
}

/**
 * @param {URL} script
 * @param {string} name
 */
function startWorker(script, name) {
  try {
    return new Worker(script, { type: "module", name });
  } catch (error) {
    throw HeadraceError.from(error, "environment_unsupported", "the engine's worker could not be started");
  }
}

/** @param {AbortSignal} signal */
function cancelled(signal) {
  if (signal.reason instanceof HeadraceError) return signal.reason;
  return new HeadraceError("cancelled", "adding the endpoint was cancelled", { cause: signal.reason });
}

/** @param {string} reason */
function crashed(reason) {
  return new HeadraceError("worker_crashed", `the engine's worker has crashed: ${reason}`, {
    detail: { reason },
  });
}
