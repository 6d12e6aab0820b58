// The door between JavaScript and the engine's WebAssembly: the only file that sees the heap or a pointer.
//
// Counterparts: native/include/headrace.h (what is called here), headrace/library.py (the same door for
// Python), instance.js (starts the WebAssembly). Not a scheduler: tick_loop.js decides when to call.

import { HeadraceError } from "../errors.js";
import { versionMismatch } from "./artifact.js";
import { engineAborted, otherBuild, startInstance } from "./instance.js";
import { ReadAhead } from "./read_ahead.js";

/** @import { ArtifactAddresses } from "./artifact.js" */
/** @import { Instance } from "./instance.js" */
/** @import { ModelFiles, WorkerEvent } from "./protocol.js" */
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

/** One engine in one instance of the artifact. Every method throws a HeadraceError once it has aborted. */
export class EnginePort {
  #module;
  #memory;
  #log;
  #engine;
  /** A size_t for hr_engine_events to write to. */
  #lengthCell;
  #mounts = 0;

  /**
   * Starts the artifact and checks that it is the one this file was written for.
   * @param {ArtifactAddresses} addresses
   * @param {number} threads threads that compute, the caller's included
   * @returns {Promise<EnginePort>}
   * @throws {HeadraceError} artifact_missing, version_mismatch, out_of_memory, engine_aborted
   */
  static async start(addresses, threads) {
    return new EnginePort(await startInstance(addresses, threads));
  }

  /** @param {Instance} instance */
  constructor({ module, memory, log }) {
    this.#module = module;
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
   * Makes a Blob readable to the engine, lazily: nothing is copied before it is read.
   * @param {Blob} blob
   * @param {string} name
   * @returns {string} the path to load
   */
  mount(blob, name) {
    const { FS, WORKERFS } = this.#module;
    const folder = `/models/${this.#mounts++}`;
    const file = name.replace(/[^\w.-]+/g, "_").replace(/^\.*$/, "model.gguf");
    const reader = new FileReaderSync();
    // WORKERFS slices what is mounted and has its reader read the slice, which is done by then.
    const data = new ReadAhead(blob, (part) => reader.readAsArrayBuffer(part));
    WORKERFS.reader = { readAsArrayBuffer: ({ bytes }) => bytes };
    FS.mkdirTree(folder);
    FS.mount(WORKERFS, { blobs: [{ name: file, data }] }, folder);
    return `${folder}/${file}`;
  }

  /**
   * Loads mounted files; blocks until that is done. The outcome is an event, see `takeEvents`.
   * @param {ModelFiles<string>} paths
   * @param {LoadOptions} options
   * @param {(fraction: number) => void} onProgress from 0 to 1, called during the load
   */
  load({ adapters = [], ...paths }, options, onProgress) {
    const named = adapters.map(({ model, ...adapter }) => ({ ...adapter, path: model }));
    const command = JSON.stringify({ ...paths, adapters: named, options });
    const progress = this.#module.addFunction((_user, fraction) => {
      onProgress(fraction);
      return 1;
    }, "iid");
    try {
      this.#withText(command, (pointer, length) =>
        this.#call("hr_engine_load", this.#engine, pointer, length, progress, 0),
      );
    } finally {
      this.#module.removeFunction(progress);
    }
  }

  /** @param {string} request an EngineRequest as JSON */
  submit(request) {
    this.#withText(request, (pointer, length) =>
      this.#call("hr_engine_submit", this.#engine, pointer, length),
    );
  }

  /** @param {number} id */
  cancel(id) {
    this.#call("hr_engine_cancel", this.#engine, id);
  }

  /**
   * @param {number} budgetMs
   * @returns {number} unfinished requests, or -1 when the engine has failed for good
   */
  tick(budgetMs) {
    return this.#call("hr_engine_tick", this.#engine, budgetMs);
  }

  /** @returns {WorkerEvent[]} the engine's events since the last call */
  takeEvents() {
    const pointer = this.#call("hr_engine_events", this.#engine, this.#lengthCell) >>> 0;
    const length = new DataView(this.#memory.buffer).getUint32(this.#lengthCell, true);
    // A copy, because TextDecoder refuses shared memory.
    const bytes = new Uint8Array(this.#memory.buffer, pointer, length).slice();
    return JSON.parse(new TextDecoder().decode(bytes));
  }

  free() {
    this.#call("hr_engine_free", this.#engine);
    this.#call("free", this.#lengthCell);
  }

  /**
   * @template T
   * @param {string} text
   * @param {(pointer: number, length: number) => T} use
   * @returns {T}
   */
  #withText(text, use) {
    const bytes = new TextEncoder().encode(text);
    const pointer = this.#allocate(bytes.length);
    // The memory may have grown, which replaces its buffer: no view of it is ever kept.
    new Uint8Array(this.#memory.buffer, pointer, bytes.length).set(bytes);
    const result = use(pointer, bytes.length);
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
}
