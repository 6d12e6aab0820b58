// Reads a Blob for Emscripten's WORKERFS in blocks rather than in the tiny pieces the C library asks for.
//
// Counterpart: engine_port.js, which mounts it. Not a cache: one block is kept, for reading onwards. Without
// it the metadata of a model costs thousands of reads of a kilobyte, each a trip to the browser's process.

/** Small enough to waste little when the next read is elsewhere, large enough to be read fast. */
export const BLOCK_BYTES = 2 * 1024 * 1024;

/** The most one read holds in the heap, however large the tensor; whoever wants more comes again. */
export const MAX_READ_BYTES = 8 * 1024 * 1024;

/**
 * A part of the Blob, read already. It may be shorter than what was asked for, as a read of a file may.
 * @typedef {{size: number, bytes: ArrayBuffer}} Chunk
 */

/** Stands in for the Blob that WORKERFS expects: it has a size and can be sliced. */
export class ReadAhead {
  #blob;
  #read;
  #block = new ArrayBuffer(0);
  #blockStart = 0;

  /**
   * @param {Blob} blob
   * @param {(part: Blob) => ArrayBuffer} read reads at once, as FileReaderSync does
   */
  constructor(blob, read) {
    this.#blob = blob;
    this.#read = read;
  }

  get size() {
    return this.#blob.size;
  }

  /**
   * @param {number} start
   * @param {number} end after the last byte
   * @returns {Chunk}
   */
  slice(start, end) {
    let offset = start - this.#blockStart;
    if (offset < 0 || offset >= this.#block.byteLength) {
      if (end - start >= BLOCK_BYTES) {
        const part = this.#blob.slice(start, Math.min(end, start + MAX_READ_BYTES));
        return chunk(this.#read(part));
      }
      this.#block = this.#read(this.#blob.slice(start, start + BLOCK_BYTES));
      this.#blockStart = start;
      offset = 0;
    }
    return chunk(this.#block.slice(offset, offset + end - start));
  }
}

/** @param {ArrayBuffer} bytes */
function chunk(bytes) {
  return { size: bytes.byteLength, bytes };
}
