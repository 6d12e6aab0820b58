// The model store without a disk, for pages that have none: files live as long as their worker.
//
// Counterpart: opfs_storage.js, with the same promises but that of surviving. Bytes lie in the browser's Blobs
// and not in the worker's heap, but for what each file wrote last: a model may be larger than a heap.

import { HeadraceError } from "../errors.js";
import { BlobBlocks } from "./blob_blocks.js";
import { closed, failed, full, inUse, missing, requireFileName } from "./storage_errors.js";

/** @import { Storage, WritableFile } from "./types.js" */

/** What is known of a file, open or not. @typedef {{blocks: BlobBlocks, readers: number, written: boolean}} File */

/** Reads a Blob while the caller waits. @typedef {(blob: Blob) => Uint8Array} ReadBlob */

/**
 * @param {{readBlob?: ReadBlob}} [options] by default with FileReaderSync, which workers alone have
 * @returns {Storage} empty, and not shared with anybody
 */
export function createMemoryStorage({ readBlob = readInWorker } = {}) {
  return new MemoryStorage(readBlob);
}

/** @implements {Storage} */
class MemoryStorage {
  /** @type {"memory"} */ kind = "memory";
  /** @type {Map<string, File>} */ #files = new Map();
  #readBlob;

  /** @param {ReadBlob} readBlob */
  constructor(readBlob) {
    this.#readBlob = readBlob;
  }

  async list() {
    const entries = [...this.#files].map(([name, { blocks }]) => ({ name, size: blocks.size }));
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** @param {string} name */
  async openRead(name) {
    const file = this.#find(name);
    if (file.written) throw inUse(name);
    file.readers += 1;
    return new OpenFile(name, file, () => (file.readers -= 1));
  }

  /** @param {string} name */
  async openWrite(name) {
    requireFileName(name);
    const file = this.#files.get(name) ?? this.#create(name);
    if (isOpen(file)) throw inUse(name);
    file.written = true;
    return new OpenFile(name, file, () => {
      file.written = false;
      file.blocks.seal();
    });
  }

  /** @param {string} name */
  async readText(name) {
    requireFileName(name);
    const text = await this.#files.get(name)?.blocks.blob().text();
    return text ?? null;
  }

  /** @param {string} name @param {string} text */
  async writeText(name, text) {
    requireFileName(name);
    const file = this.#files.get(name) ?? this.#create(name);
    if (isOpen(file)) throw inUse(name);
    const bytes = new TextEncoder().encode(text);
    file.blocks = new BlobBlocks(this.#readBlob);
    file.blocks.write(bytes, 0);
    file.blocks.seal();
  }

  /** @param {string} from @param {string} to */
  async rename(from, to) {
    requireFileName(to);
    const file = this.#find(from);
    const replaced = this.#files.get(to);
    if (isOpen(file)) throw inUse(from);
    if (replaced && isOpen(replaced)) throw inUse(to);
    this.#files.delete(from);
    this.#files.set(to, file);
  }

  /** @param {string} name */
  async remove(name) {
    requireFileName(name);
    const file = this.#files.get(name);
    if (file && isOpen(file)) throw inUse(name);
    this.#files.delete(name);
  }

  /** @param {string} name */
  async blob(name) {
    return this.#find(name).blocks.blob();
  }

  async estimate() {
    const usedBytes = [...this.#files.values()].reduce((sum, { blocks }) => sum + blocks.size, 0);
    return { usedBytes, quotaBytes: null };
  }

  /** @param {string} name */
  #find(name) {
    requireFileName(name);
    const file = this.#files.get(name);
    if (!file) throw missing(name);
    return file;
  }

  /** @param {string} name @returns {File} */
  #create(name) {
    const file = { blocks: new BlobBlocks(this.#readBlob), readers: 0, written: false };
    this.#files.set(name, file);
    return file;
  }
}

/** @implements {WritableFile} */
class OpenFile {
  #name;
  #file;
  /** @type {(() => void) | null} null once closed */ #onClose;

  /** @param {string} name @param {File} file @param {() => void} onClose */
  constructor(name, file, onClose) {
    this.#name = name;
    this.#file = file;
    this.#onClose = onClose;
  }

  get size() {
    return this.#file.blocks.size;
  }

  /** @param {Uint8Array} target @param {number} at */
  read(target, at) {
    return this.#do((blocks) => blocks.read(target, at));
  }

  /** @param {Uint8Array} source @param {number} at */
  write(source, at) {
    this.#do((blocks) => blocks.write(source, at));
  }

  /** @param {number} size */
  truncate(size) {
    this.#do((blocks) => blocks.truncate(size));
  }

  flush() {
    this.#do(() => {});
  }

  close() {
    this.#onClose?.();
    this.#onClose = null;
  }

  /**
   * @template T
   * @param {(blocks: BlobBlocks) => T} action
   */
  #do(action) {
    if (!this.#onClose) throw closed(this.#name);
    try {
      return action(this.#file.blocks);
    } catch (error) {
      if (error instanceof HeadraceError) throw error;
      // What an engine says when it has no memory for an array.
      throw error instanceof RangeError ? full(this.#name, error) : failed(this.#name, error);
    }
  }
}

/** @param {File} file */
function isOpen(file) {
  return file.written || file.readers > 0;
}

/** @type {ReadBlob} */
function readInWorker(blob) {
  return new Uint8Array(new FileReaderSync().readAsArrayBuffer(blob));
}
