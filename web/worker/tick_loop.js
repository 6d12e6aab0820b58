// Drives the engine: tick, post what happened, let the worker read its messages, tick again.
//
// Counterpart: the scheduler in native/engine, which does the work of a tick. Not where messages are
// understood: engine_worker.js turns them into calls of this class.

/** @import { WorkerEvent } from "./protocol.js" */
/** @import { EnginePort } from "./engine_port.js" */

/** How long a tick may run before cancel and submit are read: one frame, so that a stop feels immediate. */
const TICK_BUDGET_MS = 16;

/**
 * Runs while there is work and sleeps without a timer while there is none.
 *
 * A tick may be suspended while it waits for a GPU. What is asked meanwhile comes after it: everything that
 * touches the engine goes one after another, through #turn.
 */
export class TickLoop {
  #port;
  #post;
  #fail;
  #scheduled = false;
  #ended = false;
  /** Settled when the last call of the engine is done. @type {Promise<void>} */ #turn = Promise.resolve();
  // A message to itself comes after the messages that already wait, and without the delay of a timer.
  #channel = new MessageChannel();

  /**
   * @param {EnginePort} port loaded
   * @param {(events: WorkerEvent[]) => void} post
   * @param {(error: unknown) => void} fail called once, when the engine cannot go on
   */
  constructor(port, post, fail) {
    this.#port = port;
    this.#post = post;
    this.#fail = fail;
    this.#channel.port1.onmessage = () => this.#tick();
  }

  /** @param {string} request an EngineRequest as JSON */
  submit(request) {
    this.#command(() => this.#port.submit(request));
  }

  /** @param {number} id */
  cancel(id) {
    this.#command(() => this.#port.cancel(id));
  }

  /**
   * Ends the engine; nothing may be called afterwards.
   * @returns {Promise<void>}
   */
  close() {
    this.#channel.port1.onmessage = null;
    return this.#next(() => this.#port.free());
  }

  /** @param {() => void | Promise<void>} call */
  #command(call) {
    this.#next(call);
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#channel.port2.postMessage(null);
  }

  #tick() {
    this.#next(async () => {
      this.#scheduled = false;
      const unfinished = await this.#port.tick(TICK_BUDGET_MS);
      const events = this.#port.takeEvents();
      if (events.length > 0) this.#post(events);
      if (unfinished > 0) this.#schedule();
    });
  }

  /**
   * @param {() => void | Promise<void>} call
   * @returns {Promise<void>} when it is done
   */
  #next(call) {
    this.#turn = this.#turn.then(async () => {
      if (this.#ended) return;
      try {
        await call();
      } catch (error) {
        this.#ended = true;
        this.#channel.port1.onmessage = null;
        this.#fail(error);
      }
    });
    return this.#turn;
  }
}
