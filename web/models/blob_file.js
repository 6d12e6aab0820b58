// A Blob as a file that can be read at once: one that the user chose, or bytes that the page holds.
//
// Counterpart: opfs_storage.js, whose files lie in the store. For workers: a page may not wait for a read.
// Not a cache: worker/mounted_file.js keeps what small reads need.

/** @import { ReadableFile } from "./types.js" */

/** The most that one read holds outside of where it goes, however much is asked for. */
export const SLICE_BYTES = 8 * 1024 * 1024;

/**
 * A Blob that changed or vanished since it was chosen makes `read` throw a DOMException.
 * @param {Blob} blob
 * @param {(part: Blob) => Uint8Array} [readBlob] by default with FileReaderSync, which workers alone have
 * @returns {ReadableFile}
 */
export function openBlob(blob, readBlob = readInWorker) {
  return {
    size: blob.size,
    read(target, at) {
      const end = Math.min(at + target.length, blob.size);
      let count = 0;
      while (at + count < end) {
        const from = at + count;
        const bytes = readBlob(blob.slice(from, Math.min(from + SLICE_BYTES, end)));
        target.set(bytes, count);
        count += bytes.length;
      }
      return count;
    },
    close() {},
  };
}

/** @param {Blob} part */
function readInWorker(part) {
  return new Uint8Array(new FileReaderSync().readAsArrayBuffer(part));
}
