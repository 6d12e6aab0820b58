// Locks by name, shared by all tabs and workers of an origin; the browser releases those of a worker that ends.
//
// Counterpart: headrace/models/locks.py, the same over files. Where there are no Web Locks (an insecure
// origin), in_process_locks.js stands in: the store is then in memory, and its worker the only one to see it.

import { HeadraceError } from "../errors.js";
import { InProcessLocks } from "./in_process_locks.js";

/**
 * @typedef {object} LockOptions
 * @property {boolean} [shared] beside others that share; default alone
 * @property {boolean} [wait] until it is free, the default; else it must be free now
 * @property {AbortSignal} [signal] ends the waiting, not the lock
 */

/** What this module needs of the browser's LockManager. @typedef {Pick<LockManager, "request" | "query">} Locks */

/** @type {Promise<Locks> | null} */
let chosen = null;

/**
 * Holds a lock while an action runs, however it ends.
 * @template T
 * @param {string} name
 * @param {LockOptions} options
 * @param {() => T | Promise<T>} action
 * @returns {Promise<T>} what the action returned
 * @throws {HeadraceError} model_in_use when it is taken and `wait` is false; cancelled
 */
export async function withLock(name, options, action) {
  const release = await holdLock(name, options);
  try {
    return await action();
  } finally {
    release();
  }
}

/**
 * Takes a lock, to be released by calling what this resolves to (more than once does no harm).
 * @param {string} name
 * @param {LockOptions} [options]
 * @returns {Promise<() => void>}
 * @throws {HeadraceError} model_in_use when it is taken and `wait` is false; cancelled
 */
export async function holdLock(name, { shared = false, wait = true, signal } = {}) {
  if (signal?.aborted) throw cancelled(signal);
  const locks = await available();
  return new Promise((resolve, reject) => {
    /** @type {LockOptions & {mode: LockMode, ifAvailable?: boolean}} */
    const request = { mode: shared ? "shared" : "exclusive" };
    // The browser refuses a request with both: what does not wait cannot be aborted.
    if (!wait) request.ifAvailable = true;
    else if (signal) request.signal = signal;

    const held = locks.request(name, request, (lock) => {
      if (lock === null) throw taken(name);
      return new Promise((release) => resolve(() => release(undefined)));
    });
    held.catch((error) => {
      if (signal?.aborted) reject(cancelled(signal));
      else reject(HeadraceError.from(error, "storage_failed", `the lock ${name} cannot be taken`));
    });
  });
}

/**
 * @param {string} name
 * @returns {Promise<boolean>} whether anybody holds it now, shared or alone
 */
export async function lockIsHeld(name) {
  const { held = [] } = await (await available()).query();
  return held.some((lock) => lock.name === name);
}

/** @returns {Promise<Locks>} */
function available() {
  chosen ??= choose();
  return chosen;
}

/** @returns {Promise<Locks>} */
async function choose() {
  try {
    // Rejected where the origin is opaque, as in a sandboxed frame.
    await navigator.locks.query();
    return navigator.locks;
  } catch {
    return new InProcessLocks();
  }
}

/** @param {string} name */
function taken(name) {
  return new HeadraceError("model_in_use", `${name} is in use, here or in another tab`, {
    detail: { lock: name },
  });
}

/** @param {AbortSignal} signal */
function cancelled(signal) {
  return new HeadraceError("cancelled", "cancelled while waiting for a lock", { cause: signal.reason });
}
