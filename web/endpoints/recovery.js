// When an engine that was lost is worth starting again, and what is said of it.
//
// Counterpart: local_session.js, which starts engines and submits again what was unfinished (see
// pending_request.js). Decides and words; starts nothing.

import { HeadraceError } from "../errors.js";

/** @import { ErrorCode } from "headrace/declarations" */

/**
 * How often an engine is started again without a request having been completed in between, and how often one
 * request is submitted again. What fails a third time is likely to fail a fourth time.
 */
export const MAX_RESTARTS = 2;

/** The second one waits: a driver that was reset, or memory that is short, needs a moment. */
const PAUSES_MS = [0, 1000];

/**
 * What ends an engine that has worked, and may well not happen again. A trap of WebAssembly is internal.
 * @type {ReadonlySet<ErrorCode>}
 */
const PASSING = new Set([
  "worker_crashed",
  "engine_aborted",
  "device_lost",
  "gpu_failed",
  "out_of_memory",
  "internal",
]);

/**
 * @param {HeadraceError} error that has ended a working engine
 * @returns {boolean}
 */
export function isWorthRestart({ code }) {
  return PASSING.has(code);
}

/** The restarts of one endpoint. */
export class Recovery {
  #inARow = 0;
  #total = 0;
  /** @type {HeadraceError | null} */ #last = null;

  /**
   * The engine was lost; a load that fails while it is restarted counts like a loss.
   * @param {HeadraceError} error
   * @returns {number | null} milliseconds until the next start; null: there is none any more
   */
  lose(error) {
    if (this.#inARow === MAX_RESTARTS) return null;
    this.#last = error;
    this.#total++;
    return PAUSES_MS[this.#inARow++];
  }

  /** A request was completed: the engine works. */
  completed() {
    this.#inARow = 0;
  }

  /**
   * An engine of another kind takes over from one that was lost too often.
   * @param {HeadraceError} error
   */
  replaceEngine(error) {
    this.#inARow = 0;
    this.#last = error;
    this.#total++;
  }

  /**
   * @param {number} [count] restarts to tell of; by default all
   * @returns {string[]} a sentence for people, if there is something to say
   */
  reasons(count = this.#total) {
    if (!this.#last || count === 0) return [];
    const often = count === 1 ? "once" : `${times(count)}, the last time because`;
    return [`The engine was restarted ${often}: ${sentence(this.#last)}`];
  }
}

/**
 * @param {HeadraceError} error of an engine, or a request, that had all its restarts
 * @returns {HeadraceError} the same, with how often it was tried
 */
export function exhausted(error) {
  const message = `${error.message}; the engine was restarted ${times(MAX_RESTARTS)} before, in vain`;
  return new HeadraceError(error.code, message, {
    detail: { ...error.detail, restarts: MAX_RESTARTS },
    cause: error.cause,
  });
}

/**
 * @param {HeadraceError} error that WebGPU failed with the last time
 * @returns {string} why the CPU is used instead
 */
export function whyCpuInstead(error) {
  return `CPU: WebGPU failed ${times(MAX_RESTARTS + 1)} in a row, the last time because: ${sentence(error)}`;
}

/** @param {number} count */
function times(count) {
  return count === 2 ? "twice" : `${count} times`;
}

/** @param {HeadraceError} error */
function sentence({ message }) {
  return message.endsWith(".") ? message : `${message}.`;
}
