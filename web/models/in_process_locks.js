// Web Locks where the browser has none: the same queue, seen by one worker only.
//
// Counterpart: navigator.locks; locks.js chooses between them. Only what locks.js uses: `mode`, `ifAvailable`
// and `signal` of requests, and the held ones of a query.

/** @typedef {{mode: LockMode, start: () => void}} Waiting */
/** @typedef {{held: LockMode[], waiting: Waiting[]}} Queue */

/** @implements {Pick<LockManager, "request" | "query">} */
export class InProcessLocks {
  /** @type {Map<string, Queue>} */ #queues = new Map();

  /**
   * @param {string} name
   * @param {any} options
   * @param {(lock: Lock | null) => any} [callback]
   * @returns {Promise<any>}
   */
  async request(name, options, callback) {
    const { mode = "exclusive", ifAvailable = false, signal } = /** @type {LockOptions} */ (options);
    const run = /** @type {(lock: Lock | null) => any} */ (callback);
    signal?.throwIfAborted();
    const queue = this.#queues.get(name) ?? { held: [], waiting: [] };
    this.#queues.set(name, queue);
    if (ifAvailable && !isFree(queue, mode)) return run(null);

    await new Promise((resolve, reject) => {
      /** @type {Waiting} */
      const waiting = {
        mode,
        start() {
          signal?.removeEventListener("abort", abort);
          resolve(undefined);
        },
      };
      const abort = () => {
        queue.waiting.splice(queue.waiting.indexOf(waiting), 1);
        reject(signal?.reason);
        this.#advance(name, queue);
      };
      signal?.addEventListener("abort", abort, { once: true });
      queue.waiting.push(waiting);
      this.#advance(name, queue);
    });
    try {
      return await run({ name, mode });
    } finally {
      queue.held.splice(queue.held.indexOf(mode), 1);
      this.#advance(name, queue);
    }
  }

  /** @returns {Promise<LockManagerSnapshot>} */
  async query() {
    const held = [...this.#queues].flatMap(([name, queue]) => queue.held.map((mode) => ({ name, mode })));
    return { held };
  }

  /**
   * Grants what can be granted, in the order of asking: who shares waits behind one who wants it alone.
   * @param {string} name
   * @param {Queue} queue
   */
  #advance(name, queue) {
    while (queue.waiting.length > 0 && fits(queue.held, queue.waiting[0].mode)) {
      const next = /** @type {Waiting} */ (queue.waiting.shift());
      queue.held.push(next.mode);
      next.start();
    }
    if (queue.held.length + queue.waiting.length === 0 && this.#queues.get(name) === queue) {
      this.#queues.delete(name);
    }
  }
}

/**
 * @param {Queue} queue
 * @param {LockMode} mode
 */
function isFree(queue, mode) {
  return queue.waiting.length === 0 && fits(queue.held, mode);
}

/**
 * @param {LockMode[]} held
 * @param {LockMode} mode
 */
function fits(held, mode) {
  return held.length === 0 || (mode === "shared" && held[0] === "shared");
}
