// One file as the engine reads it: tensors straight into the heap, a header in blocks.
//
// Counterparts: native/storage/storage_fs.js hands the reads on, web/models/types.js tells what is read. Not a
// cache: one block is kept. The C library asks for a header in pieces of a kilobyte, and where the browser keeps
// files behind another process each read costs a third of a millisecond.

import { HeadraceError } from "../errors.js";

/** @import { ReadableFile } from "../models/types.js" */
/** @import { StorageCounters } from "./protocol.js" */

/** Small enough to waste little behind a header's end, large enough for few reads. */
export const BLOCK_BYTES = 256 * 1024;

/** What the C library keeps of a file it reads onwards; whoever asks for more wants just that. */
export const SMALL_BYTES = 1024;

/** Reads of a file, counted, and what went wrong with them. */
export class MountedFile {
  #file;
  #counters;
  #block = new Uint8Array(0);
  #blockStart = 0;
  /** The small read before: a second one that continues it tells a header, a lone one is a small tensor. */
  #lastStart = 0;
  #lastEnd = 0;
  /** @type {HeadraceError | null} */
  #failure = null;

  /**
   * @param {string} name for people
   * @param {ReadableFile} file
   * @param {StorageCounters} counters gets what is read
   */
  constructor(name, file, counters) {
    this.name = name;
    this.#file = file;
    this.#counters = counters;
  }

  get size() {
    return this.#file.size;
  }

  /** The first error of a read: Emscripten only passes on that there was one. */
  get failure() {
    return this.#failure;
  }

  /**
   * @param {Uint8Array} target may lie in shared memory
   * @param {number} position
   * @returns {number} bytes read, at least one before the file's end
   * @throws {HeadraceError} storage_failed, or what the file throws
   */
  read(target, position) {
    const length = Math.min(target.length, this.size - position);
    if (length <= 0) return 0;
    if (!this.#isInBlock(position)) {
      if (length > SMALL_BYTES || !this.#isOnwards(position)) {
        if (length <= SMALL_BYTES) this.#remember(position, length);
        return this.#fetch(target.subarray(0, length), position);
      }
      this.#fillBlock(position);
    }
    const offset = position - this.#blockStart;
    const bytes = this.#block.subarray(offset, offset + length);
    target.set(bytes);
    this.#remember(position, bytes.length);
    return bytes.length;
  }

  close() {
    this.#block = new Uint8Array(0);
    this.#file.close();
  }

  /** @param {number} position */
  #isInBlock(position) {
    return position >= this.#blockStart && position < this.#blockStart + this.#block.length;
  }

  /** @param {number} position */
  #isOnwards(position) {
    return position >= this.#lastStart && position <= this.#lastEnd;
  }

  /** @param {number} start @param {number} length */
  #remember(start, length) {
    this.#lastStart = start;
    this.#lastEnd = start + length;
  }

  /** @param {number} start */
  #fillBlock(start) {
    const block = new Uint8Array(Math.min(BLOCK_BYTES, this.size - start));
    this.#block = block.subarray(0, this.#fetch(block, start));
    this.#blockStart = start;
  }

  /** @param {Uint8Array} target @param {number} position */
  #fetch(target, position) {
    const started = performance.now();
    const count = this.#attempt(target, position);
    this.#counters.readMs += performance.now() - started;
    this.#counters.reads += 1;
    this.#counters.bytesRead += count;
    return count;
  }

  /** @param {Uint8Array} target @param {number} position */
  #attempt(target, position) {
    try {
      const count = this.#file.read(target, position);
      if (count > 0) return count;
      const [there, size] = [position, this.size].map((bytes) => bytes.toLocaleString("en"));
      throw new HeadraceError("storage_failed", `${this.name} ends at byte ${there} of ${size}`);
    } catch (error) {
      const failure = HeadraceError.from(error, "storage_failed", `${this.name} could not be read`);
      this.#failure ??= failure;
      throw failure;
    }
  }
}
