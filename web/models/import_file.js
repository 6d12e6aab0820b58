// Takes a local file into the store, by the way that downloads take: hashed, and split when it is large.
//
// Counterparts: download.js, the same from the network; fetch_model.js calls it. Not resumed: what is local
// comes again at once.

import { HeadraceError } from "../errors.js";
import { HashPump } from "./hash_pump.js";
import { Partial } from "./partial.js";
import { requireNotAborted } from "./retries.js";

/** @import { SplitSizes } from "./partial.js" */
/** @import { FetchedFile, Storage } from "./types.js" */

const SLICE_BYTES = 4 * 1024 * 1024;

/**
 * @typedef {{storage: Storage, key: string, onBytes?: (loaded: number, total: number) => void,
 *   signal?: AbortSignal} & SplitSizes} ImportOptions
 */

/**
 * @param {Blob} blob
 * @param {string} name
 * @param {ImportOptions} options
 * @returns {Promise<FetchedFile>}
 * @throws {HeadraceError} model_invalid, model_truncated, model_not_found (it can no longer be read),
 *   storage_full, cancelled; nothing is kept
 */
export async function importBlob(blob, name, { storage, key, onBytes = () => {}, signal, ...sizes }) {
  const partial = await Partial.open(storage, { key, display: name, name }, sizes);
  const ending = new AbortController();
  const pump = new HashPump(partial);
  try {
    await partial.setSize(blob.size);
    const hashing = pump.run(ending.signal);
    hashing.catch(() => {});
    for (let at = 0; at < blob.size; at += SLICE_BYTES) {
      requireNotAborted(signal);
      const bytes = await readSlice(blob.slice(at, at + SLICE_BYTES), name);
      partial.write(bytes, at);
      await partial.plan();
      partial.readHeader();
      pump.wake();
      onBytes(at + bytes.length, blob.size);
    }
    await hashing;
    return await partial.finish();
  } catch (error) {
    ending.abort(error);
    await partial.discard();
    throw error;
  } finally {
    await partial.settle();
  }
}

/**
 * @param {Blob} slice
 * @param {string} name
 */
async function readSlice(slice, name) {
  try {
    return new Uint8Array(await slice.arrayBuffer());
  } catch (error) {
    throw HeadraceError.from(error, "model_not_found", `${name} could not be read`);
  }
}
