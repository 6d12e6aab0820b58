// One worker with one engine in it, as the page holds it: commands down, events up, and how its death is noticed.
//
// Counterpart: worker/engine_worker.js; the messages are told in worker/protocol.js. Knows no requests: what a
// loss means for them is decided in local_session.js.

import { deferred } from "../deferred.js";
import { HeadraceError } from "../errors.js";

/** @import { Command, OpenCommand, WorkerEvent, WorkerMessage } from "../worker/protocol.js" */

/** How long a closing worker may take to finish its step and free the engine before it is terminated. */
const CLOSE_GRACE_MS = 2000;

export class WorkerLink {
  /** The worker itself. */
  worker;

  #listener;
  #lock = `headrace-worker-${Date.now()}-${Math.random()}`;
  /** @type {AbortController | null} */ #lockWatch = null;
  #closed = deferred();
  #isOver = false;

  /**
   * @param {string} name
   * @param {object} listener called until the link is closed or terminated
   * @param {(events: WorkerEvent[]) => void} listener.receive events of one tick
   * @param {(error: HeadraceError) => void} listener.lose the worker is of no use any more
   * @throws {HeadraceError} environment_unsupported
   */
  constructor(name, listener) {
    this.#listener = listener;
    const script = new URL("../worker/engine_worker.js", import.meta.url);
    this.worker = startWorker(script, name);
    this.worker.onmessage = (/** @type {MessageEvent<WorkerMessage>} */ { data }) => this.#receive(data);
    this.worker.onerror = (event) => {
      event.preventDefault();
      this.#lose(event.message || `${script.href} could not be started`);
    };
    this.worker.onmessageerror = () => this.#lose("it sent a message that could not be read");
  }

  /** @param {Omit<OpenCommand, "type" | "lock">} command the first one */
  open(command) {
    this.send({ type: "open", ...command, lock: this.#lock });
  }

  /** @param {Command} command */
  send(command) {
    this.worker.postMessage(command);
  }

  /** @returns {Promise<void>} resolves when the engine has gone, by itself or because it took too long */
  async close() {
    this.#end();
    this.send({ type: "close" });
    const grace = setTimeout(() => this.#closed.resolve(undefined), CLOSE_GRACE_MS);
    await this.#closed.promise;
    clearTimeout(grace);
    this.worker.terminate();
  }

  /** Ends it at once, whatever it is doing. */
  terminate() {
    this.#end();
    this.#closed.resolve(undefined);
    this.worker.terminate();
  }

  #end() {
    this.#isOver = true;
    this.#lockWatch?.abort();
  }

  /** @param {WorkerMessage} message */
  #receive({ events }) {
    if (events.some(({ type }) => type === "closed")) this.#closed.resolve(undefined);
    // What a worker that was given up had still sent is not told: another one tells it.
    if (this.#isOver) return;
    this.#watchLock();
    this.#listener.receive(events);
  }

  /** @param {string} reason */
  #lose(reason) {
    if (this.#isOver) return;
    const message = `the engine's worker has crashed: ${reason}`;
    this.#listener.lose(new HeadraceError("worker_crashed", message, { detail: { reason } }));
  }

  /**
   * A terminated worker raises no event, but the browser passes its lock on. The worker holds it before it
   * sends its first message; without Web Locks (insecure pages) a killed worker goes unnoticed.
   */
  #watchLock() {
    if (this.#lockWatch || !navigator.locks) return;
    this.#lockWatch = new AbortController();
    navigator.locks
      .request(this.#lock, { signal: this.#lockWatch.signal }, () => this.#lose("it was terminated"))
      .catch(() => {});
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
