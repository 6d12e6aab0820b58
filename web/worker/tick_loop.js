// Drives the engine: tick, post what happened, let the worker read its messages, tick again.
//
// Counterpart: the scheduler in native/engine, which does the work of a tick. Not where messages are
// understood: engine_worker.js turns them into calls of this class.

/** @import { WorkerEvent } from "./protocol.js" */
/** @import { EnginePort } from "./engine_port.js" */

/** How long a tick may run before cancel and submit are read: one frame, so that a stop feels immediate. */
const TICK_BUDGET_MS = 16;

/** Runs while there is work and sleeps without a timer while there is none. */
export class TickLoop {
  #port;
  #post;
  #fail;
  #scheduled = false;
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

  /** Ends the engine; nothing may be called afterwards. */
  close() {
    this.#channel.port1.onmessage = null;
    this.#guard(() => this.#port.free());
  }

  /** @param {() => void} call */
  #command(call) {
    this.#guard(call);
    this.#schedule();
  }

  #schedule() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#channel.port2.postMessage(null);
  }

  #tick() {
    this.#scheduled = false;
    this.#guard(() => {
      const unfinished = this.#port.tick(TICK_BUDGET_MS);
      const events = this.#port.takeEvents();
      if (events.length > 0) this.#post(events);
      if (unfinished > 0) this.#schedule();
    });
  }

  /** @param {() => void} call */
  #guard(call) {
    try {
      call();
    } catch (error) {
      this.#channel.port1.onmessage = null;
      this.#fail(error);
    }
  }
}
