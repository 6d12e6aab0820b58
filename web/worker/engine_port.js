// The door between JavaScript and the engine's WebAssembly: the only file that sees the heap or a pointer.
//
// Counterparts: native/include/headrace.h (what is called here), headrace/library.py (the same door for
// Python), instance.js (starts the WebAssembly). Not a scheduler: tick_loop.js decides when to call.

import { HeadraceError } from "../errors.js";
import { versionMismatch } from "./artifact.js";
import { engineAborted, otherBuild, startInstance } from "./instance.js";
import { MountedFile } from "./mounted_file.js";

/** @import { ArtifactAddresses } from "./artifact.js" */
/** @import { GpuBinding } from "./gpu_binding.js" */
/** @import { Instance } from "./instance.js" */
/** @import { ReadableFile } from "../models/types.js" */
/** @import { ModelFiles, StorageCounters, WorkerEvent } from "./protocol.js" */
/** @import { LoadOptions } from "headrace/declarations" */

/** HR_ABI_VERSION of native/include/headrace.h. */
export const EXPECTED_ABI_VERSION = 1;

const EXPORTS = /** @type {const} */ ([
  "hr_engine_create",
  "hr_engine_load",
  "hr_engine_submit",
  "hr_engine_cancel",
  "hr_engine_tick",
  "hr_engine_events",
  "hr_engine_free",
  "malloc",
  "free",
]);

/** Exports that may wait for the GPU: they are called so that they can be suspended. */
const WAITING_EXPORTS = /** @type {const} */ ([
  "hr_engine_load",
  "hr_engine_submit",
  "hr_engine_tick",
  "hr_engine_free",
]);

/**
 * One engine in one instance of the artifact. Every method throws a HeadraceError once it has aborted.
 *
 * With a GPU, methods that give a promise may be suspended in the middle of the engine. Nothing else may be
 * called until they are done: the engine is not made for it, and its stack is in use.
 */
export class EnginePort {
  #module;
  /** @type {Map<string, (...args: number[]) => Promise<number>> | null} null without a GPU */
  #waiting = null;
  #memory;
  #log;
  #engine;
  /** A size_t for hr_engine_events to write to. */
  #lengthCell;
  /** @type {{folder: string, files: MountedFile[]}[]} */
  #mounts = [];
  #mountCount = 0;
  #counters = { bytesRead: 0, reads: 0, readMs: 0 };

  /**
   * Starts the artifact and checks that it is the one this file was written for.
   * @param {ArtifactAddresses} addresses
   * @param {number} threads threads that compute, the caller's included
   * @param {GpuBinding | null} [gpu] for an engine that is to compute on the GPU
   * @returns {Promise<EnginePort>}
   * @throws {HeadraceError} artifact_missing, version_mismatch, out_of_memory, engine_aborted
   */
  static async start(addresses, threads, gpu = null) {
    return new EnginePort(await startInstance(addresses, threads, gpu));
  }

  /** @param {Instance} instance */
  constructor({ module, exports, memory, isWrapped, log }) {
    this.#module = module;
    if (isWrapped) this.#waiting = new Map(WAITING_EXPORTS.map((name) => [name, promising(exports[name])]));
    this.#memory = memory;
    this.#log = log;
    const version = module._hr_abi_version?.();
    if (version !== EXPECTED_ABI_VERSION) throw versionMismatch(version ?? "unknown", EXPECTED_ABI_VERSION);
    const missing = EXPORTS.filter((name) => typeof module[`_${name}`] !== "function");
    if (missing.length > 0) throw otherBuild({ missing });

    this.#engine = this.#call("hr_engine_create") >>> 0;
    if (this.#engine === 0) throw new HeadraceError("out_of_memory", "there is no memory for an engine");
    this.#lengthCell = this.#allocate(4);
  }

  /**
   * Makes files readable to the engine, lazily: nothing is copied before it is read. They are this port's to
   * close, see `unmount`.
   * @param {{name: string, file: ReadableFile}[]} files names are only shown
   * @returns {string[]} the paths to load, in the same order
   */
  mount(files) {
    const { FS, STORAGEFS } = this.#module;
    const folder = `/models/${this.#mountCount++}`;
    const mounted = files.map(({ name, file }) => new MountedFile(name, file, this.#counters));
    const named = mounted.map((file, index) => ({ name: pathName(mounted, index), file }));
    FS.mkdirTree(folder);
    FS.mount(STORAGEFS, { files: named }, folder);
    this.#mounts.push({ folder, files: mounted });
    return named.map(({ name }) => `${folder}/${name}`);
  }

  /** Closes every file that was mounted: a model that is loaded lies in memory. */
  unmount() {
    for (const { folder, files } of this.#mounts.splice(0)) {
      this.#module.FS.unmount(folder);
      for (const file of files) file.close();
    }
  }

  /**
   * Loads mounted files; without a GPU, blocks until that is done. The outcome is an event, see `takeEvents`.
   * @param {ModelFiles<string[]>} paths of the adapters one each
   * @param {LoadOptions} options
   * @param {(fraction: number) => void} onProgress from 0 to 1, called during the load
   * @param {string[]} [provenOps] operations that the GPU is known to compute as the CPU does
   * @throws {HeadraceError} storage_failed and others of the files, when it failed because they could not be
   *   read
   */
  async load({ adapters = [], ...paths }, options, onProgress, provenOps = []) {
    const named = adapters.map(({ model: [path], ...adapter }) => ({ ...adapter, path }));
    const known = provenOps.length > 0 && { provenOps };
    const command = JSON.stringify({ ...paths, adapters: named, options, ...known });
    const progress = this.#module.addFunction((_user, fraction) => {
      onProgress(fraction);
      return 1;
    }, "iid");
    try {
      const loaded = await this.#withText(command, (pointer, length) =>
        this.#callWaiting("hr_engine_load", this.#engine, pointer, length, progress, 0),
      );
      if (loaded === 0) this.#throwReadFailure();
    } finally {
      this.#module.removeFunction(progress);
    }
  }

  /** @returns {StorageCounters} what was read of all files that were ever mounted */
  storageCounters() {
    return { ...this.#counters };
  }

  /** Bytes of the engine's memory. It never shrinks: this is also the most that it ever was. */
  get heapBytes() {
    return this.#memory.buffer.byteLength;
  }

  /** @param {string} request an EngineRequest as JSON */
  async submit(request) {
    await this.#withText(request, (pointer, length) =>
      this.#callWaiting("hr_engine_submit", this.#engine, pointer, length),
    );
  }

  /** @param {number} id */
  cancel(id) {
    this.#call("hr_engine_cancel", this.#engine, id);
  }

  /**
   * @param {number} budgetMs
   * @returns {Promise<number>} unfinished requests, or -1 when the engine has failed for good
   */
  tick(budgetMs) {
    return this.#callWaiting("hr_engine_tick", this.#engine, budgetMs);
  }

  /** @returns {WorkerEvent[]} the engine's events since the last call */
  takeEvents() {
    const pointer = this.#call("hr_engine_events", this.#engine, this.#lengthCell) >>> 0;
    const length = new DataView(this.#memory.buffer).getUint32(this.#lengthCell, true);
    // A copy, because TextDecoder refuses shared memory.
    const bytes = new Uint8Array(this.#memory.buffer, pointer, length).slice();
    return JSON.parse(new TextDecoder().decode(bytes));
  }

  async free() {
    await this.#callWaiting("hr_engine_free", this.#engine);
    this.#call("free", this.#lengthCell);
  }

  /**
   * Ends an engine that failed to load, and what of it would keep its memory: the threads.
   * @returns {Promise<void>}
   */
  async discard() {
    // An engine that has aborted may not even be freed any more.
    await this.free().catch(() => {});
    this.#module.PThread?.terminateAllThreads();
  }

  /** The engine only learns that a read failed, and takes the file for a damaged one. */
  #throwReadFailure() {
    const failures = this.#mounts.flatMap(({ files }) => files.map((file) => file.failure));
    const failure = failures.find((error) => error !== null);
    if (failure) throw failure;
  }

  /**
   * @template T
   * @param {string} text
   * @param {(pointer: number, length: number) => Promise<T>} use
   * @returns {Promise<T>}
   */
  async #withText(text, use) {
    const bytes = new TextEncoder().encode(text);
    const pointer = this.#allocate(bytes.length);
    // The memory may have grown, which replaces its buffer: no view of it is ever kept.
    new Uint8Array(this.#memory.buffer, pointer, bytes.length).set(bytes);
    const result = await use(pointer, bytes.length);
    this.#call("free", pointer);
    return result;
  }

  /** @param {number} bytes */
  #allocate(bytes) {
    const pointer = this.#call("malloc", bytes) >>> 0;
    if (pointer !== 0) return pointer;
    throw new HeadraceError("out_of_memory", `the engine has no memory left for ${bytes} bytes`, {
      detail: { bytes },
    });
  }

  /**
   * @param {(typeof EXPORTS)[number]} name
   * @param {number[]} args
   */
  #call(name, ...args) {
    try {
      return this.#module[`_${name}`](...args);
    } catch (error) {
      throw engineAborted(error, this.#log);
    }
  }

  /**
   * @param {(typeof WAITING_EXPORTS)[number]} name
   * @param {number[]} args
   * @returns {Promise<number>}
   */
  async #callWaiting(name, ...args) {
    const call = this.#waiting?.get(name);
    if (!call) return this.#call(name, ...args);
    try {
      return await call(...args);
    } catch (error) {
      throw engineAborted(error, this.#log);
    }
  }
}

/**
 * @param {WebAssembly.ExportValue} exported
 * @returns {(...args: number[]) => Promise<number>} suspends where the engine waits for the GPU
 */
function promising(exported) {
  return /** @type {any} */ (WebAssembly).promising(exported);
}

/**
 * A file's name in a path, which no other one in its folder has.
 * @param {MountedFile[]} files
 * @param {number} index
 */
function pathName(files, index) {
  const clean = files.map(({ name }) => name.replace(/[^\w.-]+/g, "_").replace(/^\.*$/, "model.gguf"));
  return clean.indexOf(clean[index]) === index ? clean[index] : `${index}-${clean[index]}`;
}
