// One download of a file at a time, whoever asks for it in whichever tab; the others see how far it is.
//
// Counterpart: locks.js. Progress goes over a BroadcastChannel, the outcome over the store itself: who has
// waited looks there what has come.

import { HeadraceError } from "../errors.js";
import { holdLock } from "./locks.js";
import { lockNames } from "./names.js";

/** @import { Storage, StoreProgress } from "./types.js" */

const CHANNEL = "headrace-models";

/** @typedef {(progress: StoreProgress) => void} Report */

/**
 * @template T
 * @param {Storage} storage
 * @param {string[]} keys of the files
 * @param {{signal?: AbortSignal, onProgress: Report}} options
 * @param {(report: Report) => Promise<T>} action runs when nobody else fetches any of them; what it reports
 *   goes to `onProgress`, and to those who wait
 * @returns {Promise<T>}
 * @throws {HeadraceError} cancelled
 */
export async function whileFetching(storage, keys, { signal, onProgress }, action) {
  const names = lockNames(storage);
  const channel = new BroadcastChannel(CHANNEL);
  /** @type {(() => void)[]} */
  const releases = [];
  let waiting = false;
  channel.onmessage = ({ data }) => {
    if (waiting && keys.some((key) => data.keys.includes(key)))
      onProgress({ ...data.progress, phase: "wait" });
  };
  try {
    // In one order for everybody, so that two sets with a file in common never wait for each other.
    for (const key of [...new Set(keys)].sort()) {
      const name = names.fetch(key);
      const release = await holdLock(name, { wait: false, signal }).catch(async (error) => {
        if (!isTaken(error)) throw error;
        waiting = true;
        onProgress({ phase: "wait", loaded: 0, total: null, bytesPerSecond: null, secondsLeft: null });
        return holdLock(name, { signal });
      });
      releases.push(release);
    }
    waiting = false;
    return await action((progress) => {
      onProgress(progress);
      channel.postMessage({ keys, progress });
    });
  } finally {
    for (const release of releases) release();
    channel.close();
  }
}

/** @param {unknown} error */
export function isTaken(error) {
  return error instanceof HeadraceError && error.code === "model_in_use";
}

/** @param {unknown} error */
export function ignoreTaken(error) {
  if (!isTaken(error)) throw error;
}
