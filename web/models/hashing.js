// The hash of a stored file, without keeping the worker from its messages.
//
// Counterparts: sha256.js computes, hash_pump.js does the same while a file is still being downloaded.

import { HeadraceError } from "../errors.js";
import { createSha256 } from "./sha256.js";

/** @import { ReadableFile } from "./types.js" */

const SLICE_BYTES = 1024 * 1024;

/**
 * @param {ReadableFile} file
 * @param {AbortSignal} [signal]
 * @param {(loaded: number) => void} [onBytes] called for each mebibyte
 * @returns {Promise<string>}
 * @throws {HeadraceError} cancelled, storage_failed
 */
export async function hashOf(file, signal, onBytes = () => {}) {
  const sha256 = await createSha256();
  const slice = new Uint8Array(SLICE_BYTES);
  for (let at = 0; at < file.size;) {
    const read = file.read(slice, at);
    if (read === 0) break;
    sha256.update(slice.subarray(0, read));
    at += read;
    onBytes(at);
    // Timers would cost four milliseconds a slice, which is as long as hashing it.
    await new Promise((resume) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resume(undefined);
      };
      port2.postMessage(null);
    });
    if (signal?.aborted) {
      throw new HeadraceError("cancelled", "hashing a model was cancelled", { cause: signal.reason });
    }
  }
  return sha256.digest();
}
