// The model store on disk: a folder of the origin-private file system, read and written without copies.
//
// Counterpart: memory_storage.js where there is no such disk, headrace/models/folder_storage.py natively. For
// workers only, which alone have synchronous access. Knows names and bytes, not what a model is.

import { HeadraceError } from "../errors.js";
import { withLock } from "./locks.js";
import { closed, failed, full, inUse, isFileName, missing, requireFileName } from "./storage_errors.js";

/** @import { Storage, WritableFile } from "./types.js" */

// What TypeScript's library does not know yet.
/**
 * @typedef {FileSystemFileHandle & {
 *   createSyncAccessHandle(options: {mode: "read-only" | "readwrite"}): Promise<FileSystemSyncAccessHandle>,
 *   move(name: string): Promise<void>,
 * }} FileHandle
 */

/**
 * Text is first written under a name with this in it, which no file of the store has, and then renamed. Other
 * ways to replace a file may leave half of it after a crash.
 */
const TEMPORARY = "~";

/** How often reading is tried while another worker replaces the file. */
const ATTEMPTS = 5;

/**
 * Opens the store of this origin and removes what a crash left half written in it.
 * @param {string} [folder] made when it is not there
 * @returns {Promise<Storage>}
 * @throws {HeadraceError} storage_failed when this browser or this page has no such file system
 */
export async function openOpfsStorage(folder = "headrace-models") {
  try {
    const root = await navigator.storage.getDirectory();
    const storage = new OpfsStorage(await root.getDirectoryHandle(folder, { create: true }), folder);
    await storage.removeTemporary();
    return storage;
  } catch (error) {
    throw HeadraceError.from(error, "storage_failed", "the browser's file system cannot be used");
  }
}

/** @implements {Storage} */
class OpfsStorage {
  /** @type {"opfs"} */ kind = "opfs";
  #folder;
  #temporaryLock;

  /** @param {FileSystemDirectoryHandle} folder @param {string} name */
  constructor(folder, name) {
    this.#folder = folder;
    this.#temporaryLock = `headrace-temporary-${name}`;
  }

  async list() {
    return told("the folder", async () => {
      const entries = [];
      for await (const [name, handle] of this.#entries()) {
        if (!isFileName(name) || handle.kind !== "file") continue;
        const size = await fileSize(handle);
        if (size !== null) entries.push({ name, size });
      }
      return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    });
  }

  /** @param {string} name */
  async openRead(name) {
    requireFileName(name);
    return told(name, async () => {
      const handle = await this.#file(name);
      return new OpenFile(name, await handle.createSyncAccessHandle({ mode: "read-only" }));
    });
  }

  /** @param {string} name */
  async openWrite(name) {
    requireFileName(name);
    return told(name, async () => {
      const handle = await this.#create(name, name);
      return new OpenFile(name, await handle.createSyncAccessHandle({ mode: "readwrite" }));
    });
  }

  /** @param {string} name */
  async readText(name) {
    requireFileName(name);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await (await (await this.#file(name)).getFile()).text();
      } catch (error) {
        // Also when it was replaced between the two: only then is it there at the next attempt.
        const replaced = isNamed(error, "NotReadableError") || isNamed(error, "NotFoundError");
        if (replaced && !(await told(name, () => this.#exists(name)))) return null;
        if (!replaced || attempt === ATTEMPTS) throw translated(name, error);
      }
    }
  }

  /** @param {string} name @param {string} text */
  async writeText(name, text) {
    requireFileName(name);
    const temporary = `${name}${TEMPORARY}${crypto.randomUUID()}`;
    await withLock(this.#temporaryLock, { shared: true }, () =>
      told(name, async () => {
        try {
          const handle = await this.#create(temporary, name);
          const file = new OpenFile(name, await handle.createSyncAccessHandle({ mode: "readwrite" }));
          try {
            file.write(new TextEncoder().encode(text), 0);
            file.flush();
          } finally {
            file.close();
          }
          await handle.move(name);
        } catch (error) {
          await this.#folder.removeEntry(temporary).catch(() => {});
          throw error;
        }
      }),
    );
  }

  /** @param {string} from @param {string} to */
  async rename(from, to) {
    requireFileName(from);
    requireFileName(to);
    await told(from, async () => {
      const handle = await this.#file(from);
      if (from !== to) await handle.move(to);
    });
  }

  /** @param {string} name */
  async remove(name) {
    requireFileName(name);
    try {
      await this.#folder.removeEntry(name);
    } catch (error) {
      if (!isNamed(error, "NotFoundError")) throw translated(name, error);
    }
  }

  /** @param {string} name */
  async blob(name) {
    requireFileName(name);
    return told(name, async () => (await this.#file(name)).getFile());
  }

  async estimate() {
    return told("the folder", async () => {
      const { usage = 0, quota } = await navigator.storage.estimate();
      return { usedBytes: usage, quotaBytes: quota ?? null };
    });
  }

  /** Removes what nobody will rename any more; leaves it while somebody in another worker still may. */
  async removeTemporary() {
    try {
      await withLock(this.#temporaryLock, { wait: false }, async () => {
        const names = [];
        for await (const [name] of this.#entries()) if (name.includes(TEMPORARY)) names.push(name);
        for (const name of names) await this.#folder.removeEntry(name);
      });
    } catch (error) {
      if (!(error instanceof HeadraceError && error.code === "model_in_use")) throw error;
    }
  }

  /** @param {string} name @param {FileSystemGetFileOptions} [options] */
  async #file(name, options) {
    return /** @type {FileHandle} */ (await this.#folder.getFileHandle(name, options));
  }

  /** @param {string} name @param {string} told what errors call it */
  async #create(name, told) {
    try {
      return await this.#file(name, { create: true });
    } catch (error) {
      // The folder itself is gone: the user has cleared the site's data.
      throw isNamed(error, "NotFoundError") ? failed(told, error) : error;
    }
  }

  /** @param {string} name */
  async #exists(name) {
    try {
      await this.#folder.getFileHandle(name);
      return true;
    } catch (error) {
      if (isNamed(error, "NotFoundError")) return false;
      throw error;
    }
  }

  /** @returns {AsyncIterable<[string, FileSystemHandle]>} */
  #entries() {
    return /** @type {any} */ (this.#folder).entries();
  }
}

/** @implements {WritableFile} */
class OpenFile {
  #name;
  /** @type {FileSystemSyncAccessHandle | null} null once closed */ #handle;

  /** @param {string} name @param {FileSystemSyncAccessHandle} handle */
  constructor(name, handle) {
    this.#name = name;
    this.#handle = handle;
  }

  get size() {
    return this.#do((handle) => handle.getSize());
  }

  /** @param {Uint8Array} target @param {number} at */
  read(target, at) {
    return this.#do((handle) => handle.read(target, { at }));
  }

  /** @param {Uint8Array} source @param {number} at */
  write(source, at) {
    const written = this.#do((handle) => handle.write(source, { at }));
    if (written < source.length) throw full(this.#name);
  }

  /** @param {number} size */
  truncate(size) {
    this.#do((handle) => handle.truncate(size));
  }

  flush() {
    this.#do((handle) => handle.flush());
  }

  close() {
    this.#handle?.close();
    this.#handle = null;
  }

  /**
   * @template T
   * @param {(handle: FileSystemSyncAccessHandle) => T} action
   */
  #do(action) {
    if (!this.#handle) throw closed(this.#name);
    try {
      return action(this.#handle);
    } catch (error) {
      throw translated(this.#name, error);
    }
  }
}

/**
 * @param {FileSystemHandle} handle
 * @returns {Promise<number | null>} null when it was removed meanwhile
 */
async function fileSize(handle) {
  try {
    return (await /** @type {FileSystemFileHandle} */ (handle).getFile()).size;
  } catch (error) {
    if (isNamed(error, "NotFoundError")) return null;
    throw error;
  }
}

/**
 * @template T
 * @param {string} name of the file that errors speak of
 * @param {() => Promise<T>} action
 */
async function told(name, action) {
  try {
    return await action();
  } catch (error) {
    throw translated(name, error);
  }
}

/** @param {string} name @param {unknown} error */
function translated(name, error) {
  if (error instanceof HeadraceError) return error;
  if (isNamed(error, "NotFoundError")) return missing(name, error);
  if (isNamed(error, "NoModificationAllowedError")) return inUse(name, error);
  if (isNamed(error, "QuotaExceededError")) return full(name, error);
  return failed(name, error);
}

/** @param {unknown} error @param {string} name */
function isNamed(error, name) {
  return error instanceof Error && error.name === name;
}
