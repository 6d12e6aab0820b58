// The bytes of a file in memory: blocks that are Blobs, but for the few that were written last.
//
// Counterpart: a file of the disk, for memory_storage.js. A Blob's bytes belong to the browser, which may
// keep them on disk; those of an array are in the worker's heap.

const BLOCK_BYTES = 4 * 1024 * 1024;

/** Blocks per file that are arrays, at most: more than a download has connections. */
const OPEN_BLOCKS = 6;

export class BlobBlocks {
  size = 0;
  /** Sealed blocks by their index; what is missing, or behind a Blob's end, is zeros. @type {Map<number, Blob>} */
  #sealed = new Map();
  /** Blocks that can be written, the one written last at the end. @type {Map<number, Uint8Array<ArrayBuffer>>} */
  #open = new Map();
  #readBlob;

  /** @param {(blob: Blob) => Uint8Array} readBlob */
  constructor(readBlob) {
    this.#readBlob = readBlob;
  }

  /**
   * @param {Uint8Array} target may lie in shared memory
   * @param {number} at
   * @returns {number} bytes read
   */
  read(target, at) {
    const length = Math.max(0, Math.min(target.length, this.size - at));
    for (const { index, start, end, offset } of spans(at, length)) {
      const into = target.subarray(offset, offset + end - start);
      const open = this.#open.get(index);
      if (open) {
        into.set(open.subarray(start, end));
        continue;
      }
      const blob = this.#sealed.get(index)?.slice(start, end);
      const bytes = blob && blob.size > 0 ? this.#readBlob(blob) : new Uint8Array(0);
      into.set(bytes);
      into.fill(0, bytes.length);
    }
    return length;
  }

  /**
   * @param {Uint8Array} source
   * @param {number} at
   */
  write(source, at) {
    for (const { index, start, end, offset } of spans(at, source.length)) {
      this.#writable(index).set(source.subarray(offset, offset + end - start), start);
      // At once, for a block is cut at the size when the next ones push it out of the heap.
      this.size = Math.max(this.size, index * BLOCK_BYTES + end);
    }
  }

  /** @param {number} size what lies behind is gone, what is new is zeros */
  truncate(size) {
    const last = Math.floor(size / BLOCK_BYTES);
    if (size < this.size) {
      for (const blocks of [this.#open, this.#sealed]) {
        for (const index of [...blocks.keys()]) if (index > last) blocks.delete(index);
      }
      const kept = size - last * BLOCK_BYTES;
      this.#open.get(last)?.fill(0, kept);
      const blob = this.#sealed.get(last);
      if (blob) this.#sealed.set(last, blob.slice(0, kept));
    }
    this.size = size;
  }

  /** Leaves no byte in the heap. */
  seal() {
    for (const index of [...this.#open.keys()]) this.#seal(index);
  }

  /** @returns {Blob} all bytes as they are now */
  blob() {
    this.seal();
    const parts = [];
    const zeros = new Blob([new Uint8Array(BLOCK_BYTES)]);
    for (let index = 0; index * BLOCK_BYTES < this.size; index += 1) {
      const length = Math.min(BLOCK_BYTES, this.size - index * BLOCK_BYTES);
      const blob = this.#sealed.get(index) ?? zeros.slice(0, 0);
      parts.push(blob, zeros.slice(0, length - blob.size));
    }
    return new Blob(parts);
  }

  /** @param {number} index */
  #writable(index) {
    const found = this.#open.get(index);
    const block = found ?? new Uint8Array(BLOCK_BYTES);
    const blob = this.#sealed.get(index);
    if (blob) block.set(this.#readBlob(blob));
    this.#sealed.delete(index);
    // Taken out and put in again: a Map keeps the order of putting in.
    this.#open.delete(index);
    this.#open.set(index, block);
    if (this.#open.size > OPEN_BLOCKS) this.#seal(this.#open.keys().next().value ?? index);
    return block;
  }

  /** @param {number} index */
  #seal(index) {
    const block = this.#open.get(index);
    const length = Math.min(BLOCK_BYTES, this.size - index * BLOCK_BYTES);
    if (block && length > 0) this.#sealed.set(index, new Blob([block.subarray(0, length)]));
    this.#open.delete(index);
  }
}

/**
 * Which parts of which blocks a stretch of bytes covers; `offset` counts from its beginning.
 * @param {number} at
 * @param {number} length
 * @returns {Generator<{index: number, start: number, end: number, offset: number}>}
 */
function* spans(at, length) {
  for (let offset = 0; offset < length;) {
    const index = Math.floor((at + offset) / BLOCK_BYTES);
    const start = at + offset - index * BLOCK_BYTES;
    const end = Math.min(BLOCK_BYTES, start + length - offset);
    yield { index, start, end, offset };
    offset += end - start;
  }
}
