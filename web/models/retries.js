// When to try again, and when to give up.
//
// Counterpart: download.js asks after each failure. Counts failures of all connections together: any byte that
// comes begins the count anew.

import { HeadraceError } from "../errors.js";
import { Transient } from "./transport.js";

/** @import { Answer } from "./transport.js" */
/** @import { RemoteFile } from "./types.js" */

const MOST_FAILURES = 8;
const MOST_BACKOFF_MS = 8000;
/** A server that wants more patience than this is believed to be away. */
const MOST_RETRY_AFTER_MS = 300_000;

/** Of the statuses 4xx, those that another try may change. */
const PASSING_STATUS = new Set([408, 416, 425, 429]);
const STATUS_REASONS = new Map([
  [401, "its server wants a token (status 401)"],
  [403, "its server refuses access (status 403); a token may be missing, or wrong"],
  [404, "there is no such file on its server (status 404)"],
  [410, "it is no longer on its server (status 410)"],
]);

export class Retries {
  #file;
  #backoffMs;
  #signal;
  #failures = 0;
  #turn = Promise.resolve();

  /**
   * @param {RemoteFile} file
   * @param {{backoffMs?: number, signal?: AbortSignal}} options `backoffMs` is the first pause; each is twice
   *   the one before
   */
  constructor(file, { backoffMs = 250, signal }) {
    this.#file = file;
    this.#backoffMs = backoffMs;
    this.#signal = signal;
  }

  /** Bytes have come. */
  progress() {
    this.#failures = 0;
  }

  /**
   * Waits, one caller after the other: if the server has recovered, the first to try again finds out for all.
   * @param {unknown} reason
   * @param {() => boolean} recovered whether bytes have come since
   * @returns {Promise<void>}
   * @throws {HeadraceError} download_failed, when it is no use; whatever `reason` is if it is not Transient
   */
  async after(reason, recovered) {
    requireNotAborted(this.#signal);
    if (!(reason instanceof Transient)) throw reason;
    const before = this.#turn;
    /** @type {() => void} */
    let done = () => {};
    this.#turn = new Promise((resolve) => (done = resolve));
    await before;
    try {
      if (recovered()) return;
      this.#failures += 1;
      if (this.#failures >= MOST_FAILURES) throw failure(this.#file, reason.message, reason.status);
      const backoff = Math.min(this.#backoffMs * 2 ** (this.#failures - 1), MOST_BACKOFF_MS);
      const wanted = reason.retryAfterMs ?? 0;
      if (wanted > MOST_RETRY_AFTER_MS) {
        throw failure(this.#file, `${reason.message}, and wants no request for long`, reason.status);
      }
      await pause(Math.max(backoff * (0.5 + Math.random() / 2), wanted), this.#signal);
    } finally {
      done();
    }
  }
}

/**
 * @param {RemoteFile} file
 * @param {string} reason completes "… could not be downloaded: "
 * @param {number | null} [status] of HTTP
 */
export function failure({ display }, reason, status = null) {
  return new HeadraceError("download_failed", `${display} could not be downloaded: ${reason}`, {
    detail: { url: display, status },
  });
}

/**
 * @param {RemoteFile} file
 * @param {Answer} answer
 * @throws {Transient} when it is no file now; download_failed when it will never be
 */
export function requireFile(file, answer) {
  const { status } = answer;
  if (status === 200 || status === 206) return;
  const reason = STATUS_REASONS.get(status) ?? `its server answered with status ${status}`;
  const isFinal = status >= 400 && status < 500 && !PASSING_STATUS.has(status);
  throw isFinal ? failure(file, reason, status) : new Transient(reason, answer);
}

/** @param {AbortSignal | undefined} signal */
export function requireNotAborted(signal) {
  if (!signal?.aborted) return;
  if (signal.reason instanceof HeadraceError) throw signal.reason;
  throw new HeadraceError("cancelled", "the download was cancelled; what has come is kept", {
    cause: signal.reason,
  });
}

/**
 * @param {number} ms
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<void>}
 */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      try {
        requireNotAborted(signal);
      } catch (error) {
        reject(error);
      }
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
