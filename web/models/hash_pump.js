// Follows what has come with the hash: reads it back from the disk, in order, in the pauses of the download.
//
// Counterparts: partial.js hashes, download.js wakes it. One path for what is fresh, has come in parallel, or
// was there before: what is hashed is what is stored.

import { requireNotAborted } from "./retries.js";

/** @import { Partial } from "./partial.js" */

export class HashPump {
  #partial;
  /** @type {(() => void) | null} */ #waiting = null;

  /** @param {Partial} partial */
  constructor(partial) {
    this.#partial = partial;
  }

  /** More has come. */
  wake() {
    this.#waiting?.();
    this.#waiting = null;
  }

  /**
   * @param {AbortSignal} signal
   * @returns {Promise<void>} resolves when all has come and is hashed
   */
  async run(signal) {
    const turn = new MessageChannel();
    const wake = () => this.wake();
    signal.addEventListener("abort", wake);
    try {
      for (;;) {
        // A journal that waits for hashes would fall behind what it should remember.
        await this.#partial.saved();
        // From here to the waiting nothing else runs, so that no waking is missed.
        requireNotAborted(signal);
        if (this.#partial.isComplete && this.#partial.hashed === this.#partial.size) return;
        if (this.#partial.hashSlice()) await nextTurn(turn);
        else await new Promise((resolve) => (this.#waiting = () => resolve(undefined)));
      }
    } finally {
      signal.removeEventListener("abort", wake);
      turn.port1.close();
    }
  }
}

/**
 * Lets what has arrived meanwhile go first. A timer would make long pauses of it.
 * @param {MessageChannel} channel
 * @returns {Promise<void>}
 */
function nextTurn({ port1, port2 }) {
  return new Promise((resolve) => {
    port1.onmessage = () => resolve();
    port2.postMessage(null);
  });
}
