// The door between JavaScript and the engine's WebAssembly: the only file that sees the heap or a pointer.
//
// Counterparts: native/include/headrace.h (what is called here), headrace/native.py (the same door for
// Python). Not a scheduler and not a protocol: tick_loop.js decides when, engine_worker.js what.

import { HeadraceError } from "../errors.js";
import { versionMismatch } from "./artifact.js";

/** @import { EngineRequest, WorkerEvent } from "./protocol.js" */
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

/** The engine's last words, kept for the error that ends it. */
const LOG_LINES = 20;

/**
 * What is used of Emscripten's module object. Pointers and sizes come back signed and need `>>> 0`.
 * @typedef {Record<`_${string}`, (...args: number[]) => number> & {
 *   FS: {mkdirTree(path: string): void, mount(type: unknown, options: object, path: string): void},
 *   WORKERFS: unknown,
 *   addFunction(callback: (...args: number[]) => number, signature: string): number,
 *   removeFunction(pointer: number): void}} EmscriptenModule
 */

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
   * Compiles and starts the artifact, and checks that it is the one this file was written for.
   * @param {{glue: string, wasm: string}} addresses absolute URLs
   * @param {number} threads threads that compute, the caller's included
   * @returns {Promise<EnginePort>}
   * @throws {HeadraceError} artifact_missing, version_mismatch, out_of_memory, engine_aborted
   */
  static async start(addresses, threads) {
    const createHeadrace = await importGlue(addresses.glue);
    /** @type {string[]} */
    const log = [];
    try {
      const { module, memory } = await instantiate(createHeadrace, addresses, threads, log);
      return new EnginePort(module, memory, log);
    } catch (error) {
      throw startError(error, log);
    }
  }

  /**
   * @param {EmscriptenModule} module
   * @param {WebAssembly.Memory} memory
   * @param {string[]} log
   */
  constructor(module, memory, log) {
    this.#module = module;
    this.#memory = memory;
    this.#log = log;
    const version = module._hr_abi_version?.();
    if (version !== EXPECTED_ABI_VERSION) throw versionMismatch(version ?? "unknown", EXPECTED_ABI_VERSION);
    const missing = EXPORTS.filter((name) => typeof module[`_${name}`] !== "function");
    if (missing.length > 0) throw otherBuild({ missing });

    this.#engine = this.#call("hr_engine_create") >>> 0;
    if (this.#engine === 0) throw new HeadraceError("out_of_memory", "There is no memory for an engine.");
    this.#lengthCell = this.#allocate(4);
  }

  /**
   * Makes a Blob readable to the engine, lazily: a read copies only what it asks for.
   * @param {Blob} blob
   * @param {string} name
   * @returns {string} the path to load
   */
  mount(blob, name) {
    const { FS, WORKERFS } = this.#module;
    const folder = `/models/${this.#mounts++}`;
    const file = name.replace(/[^\w.-]+/g, "_") || "model.gguf";
    FS.mkdirTree(folder);
    FS.mount(WORKERFS, { blobs: [{ name: file, data: blob }] }, folder);
    return `${folder}/${file}`;
  }

  /**
   * Loads a mounted model; blocks until that is done. The outcome is an event, see `takeEvents`.
   * @param {string} path
   * @param {LoadOptions} options
   * @param {(fraction: number) => void} onProgress from 0 to 1, called during the load
   */
  load(path, options, onProgress) {
    const progress = this.#module.addFunction((_user, fraction) => {
      onProgress(fraction);
      return 1;
    }, "iid");
    try {
      this.#withText(JSON.stringify({ model: path, options }), (pointer, length) =>
        this.#call("hr_engine_load", this.#engine, pointer, length, progress, 0),
      );
    } finally {
      this.#module.removeFunction(progress);
    }
  }

  /** @param {EngineRequest} request */
  submit(request) {
    this.#withText(JSON.stringify(request), (pointer, length) =>
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
    throw new HeadraceError("out_of_memory", `The engine has no memory left for ${bytes} bytes.`, { detail: { bytes } });
  }

  /**
   * @param {(typeof EXPORTS)[number]} name
   * @param {number[]} args
   */
  #call(name, ...args) {
    try {
      return this.#module[`_${name}`](...args);
    } catch (error) {
      throw aborted(error, this.#log);
    }
  }
}

/**
 * @param {string} glue
 * @returns {Promise<(options: object) => Promise<EmscriptenModule>>}
 */
async function importGlue(glue) {
  /** @type {{default?: (options: object) => Promise<EmscriptenModule>}} */
  const glueModule = await import(glue).catch((error) => {
    throw notLoaded(glue, error);
  });
  if (typeof glueModule.default !== "function") throw otherBuild({ glue });
  return glueModule.default;
}

/**
 * @param {(options: object) => Promise<EmscriptenModule>} createHeadrace
 * @param {{glue: string, wasm: string}} addresses
 * @param {number} threads
 * @param {string[]} log receives what the engine prints
 * @returns {Promise<{module: EmscriptenModule, memory: WebAssembly.Memory}>}
 */
function instantiate(createHeadrace, { glue, wasm }, threads, log) {
  /** @param {string} line */
  const keep = (line) => {
    log.push(line);
    if (log.length > LOG_LINES) log.shift();
  };
  return new Promise((resolve, reject) => {
    /** @type {WebAssembly.Memory} */
    let memory;
    createHeadrace({
      headraceThreads: threads,
      mainScriptUrlOrBlob: glue,
      print: keep,
      printErr: keep,
      // Emscripten never settles its promise when this hook fails, so a failure is told here.
      instantiateWasm(
        /** @type {WebAssembly.Imports} */ imports,
        /** @type {(instance: WebAssembly.Instance, module: WebAssembly.Module) => void} */ receive,
      ) {
        compile(wasm)
          .then(async (compiled) => {
            const instance = await WebAssembly.instantiate(compiled, imports);
            memory = findMemory(imports, instance);
            receive(instance, compiled);
          })
          .catch(reject);
        return {};
      },
    }).then((module) => resolve({ module, memory }), reject);
  });
}

/**
 * @param {string} wasm
 * @returns {Promise<WebAssembly.Module>}
 */
async function compile(wasm) {
  const response = await fetch(wasm).catch((error) => {
    throw notLoaded(wasm, error);
  });
  if (!response.ok) throw notLoaded(wasm, `the server answered ${response.status}`);
  const type = response.headers.get("content-type") ?? "";
  return type.startsWith("application/wasm")
    ? WebAssembly.compileStreaming(response)
    : WebAssembly.compile(await response.arrayBuffer());
}

/**
 * The instance's memory, exported (single-thread) or imported (multi-thread), whatever the linker calls it.
 * @param {WebAssembly.Imports} imports
 * @param {WebAssembly.Instance} instance
 * @returns {WebAssembly.Memory}
 */
function findMemory(imports, instance) {
  const imported = Object.values(imports).flatMap((group) => Object.values(group));
  const values = [...imported, ...Object.values(instance.exports)];
  const memory = values.find((value) => value instanceof WebAssembly.Memory);
  if (!memory) throw otherBuild({ missing: ["memory"] });
  return memory;
}

/**
 * @param {string} url
 * @param {unknown} cause
 */
function notLoaded(url, cause) {
  const detail = { url, reason: String(cause) };
  return new HeadraceError("artifact_missing", `The engine could not be loaded from ${url}.`, { detail, cause });
}

/**
 * @param {unknown} error
 * @param {string[]} log
 */
function startError(error, log) {
  if (error instanceof HeadraceError) return error;
  if (error instanceof RangeError) {
    return HeadraceError.from(error, "out_of_memory", "The engine's memory could not be reserved");
  }
  if (error instanceof WebAssembly.RuntimeError) return aborted(error, log);
  // What is left is glue and wasm that do not fit together: CompileError, LinkError, a missing function.
  return otherBuild({ reason: String(error) }, error);
}

/**
 * @param {Record<string, unknown>} detail
 * @param {unknown} [cause]
 */
function otherBuild(detail, cause) {
  const message = "The engine's files come from different builds: reload the page.";
  return new HeadraceError("version_mismatch", message, { detail, cause });
}

/**
 * @param {unknown} error
 * @param {string[]} log
 */
function aborted(error, log) {
  const reason = error instanceof Error ? error.message : String(error);
  return new HeadraceError("engine_aborted", `The engine stopped unexpectedly: ${reason}`, {
    detail: { reason, log: [...log] },
    cause: error,
  });
}
