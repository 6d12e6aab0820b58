// Starts one artifact: fetches, compiles and instantiates Emscripten's glue and wasm.
//
// Counterparts: artifact.js (finds the files), engine_port.js (calls what is started here). Not a user of
// the engine: it hands the memory on without looking into it.

import { HeadraceError } from "../errors.js";

/** @import { ArtifactAddresses } from "./artifact.js" */
/** @import { GpuBinding } from "./gpu_binding.js" */
/** @import { MountedFile } from "./mounted_file.js" */

/** The engine's last words, kept for the error that ends it. */
const LOG_LINES = 20;

/**
 * What is used of Emscripten's module object. Pointers and sizes come back signed and need `>>> 0`. Only the
 * multi-thread artifact has PThread.
 * @typedef {Record<`_${string}`, (...args: number[]) => number> & {
 *   FS: {mkdirTree(path: string): void, unmount(path: string): void,
 *     mount(type: object, options: {files: {name: string, file: MountedFile}[]}, path: string): void},
 *   STORAGEFS: object,
 *   addFunction(callback: (...args: number[]) => number, signature: string): number,
 *   removeFunction(pointer: number): void,
 *   PThread?: {terminateAllThreads(): void}}} EmscriptenModule
 */

/**
 * `log` holds the last lines the engine has printed, and goes on doing so. `isWrapped`: its exports are to be
 * called so that they can be suspended.
 * @typedef {{module: EmscriptenModule, exports: WebAssembly.Exports, memory: WebAssembly.Memory,
 *   isWrapped: boolean, log: readonly string[]}} Instance
 */

/** The one import that waits, see native/webgpu/browser_gpu.h. */
const WAITING_IMPORT = "hr_gpu_wait";

/**
 * @param {ArtifactAddresses} addresses
 * @param {number} threads size of the pool of threads, the caller included
 * @param {GpuBinding | null} gpu for an engine that computes on the GPU; needs JSPI
 * @returns {Promise<Instance>}
 * @throws {HeadraceError} artifact_missing, version_mismatch, out_of_memory, engine_aborted
 */
export async function startInstance({ glue, wasm }, threads, gpu) {
  const createHeadrace = await importGlue(glue);
  /** @type {string[]} */
  const log = [];
  try {
    return { ...(await instantiate(createHeadrace, wasm, threads, gpu, log)), log };
  } catch (error) {
    throw startError(error, log);
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
 * @param {string} wasm
 * @param {number} threads
 * @param {GpuBinding | null} gpu
 * @param {string[]} log receives what the engine prints
 * @returns {Promise<Omit<Instance, "log">>}
 */
function instantiate(createHeadrace, wasm, threads, gpu, log) {
  /** @param {string} line */
  const keep = (line) => {
    log.push(line);
    if (log.length > LOG_LINES) log.shift();
  };
  return new Promise((resolve, reject) => {
    let isWrapped = false;
    /** @type {WebAssembly.Exports} */
    let exports;
    /** @type {WebAssembly.Memory} */
    let memory;
    createHeadrace({
      headraceThreads: threads,
      webgpu: gpu,
      print: keep,
      printErr: keep,
      // Emscripten never settles its promise when this hook fails, so a failure is told here.
      instantiateWasm(
        /** @type {WebAssembly.Imports} */ imports,
        /** @type {(instance: WebAssembly.Instance, module: WebAssembly.Module) => void} */ receive,
      ) {
        compile(wasm)
          .then(async (compiled) => {
            isWrapped = gpu !== null && letWait(imports);
            const instance = await WebAssembly.instantiate(compiled, imports);
            exports = instance.exports;
            memory = findMemory(imports, instance);
            receive(instance, compiled);
          })
          .catch(reject);
        return {};
      },
    }).then((module) => resolve({ module, exports, memory, isWrapped }), reject);
  });
}

/**
 * Lets a call into the engine be suspended where it waits for the GPU (JavaScript Promise Integration). Not
 * by Emscripten's own -sJSPI, whose artifacts start nowhere else: this one also serves browsers without.
 * @param {WebAssembly.Imports} imports
 * @returns {boolean} false for an artifact with the official port of WebGPU, whose exports wait by themselves
 */
function letWait(imports) {
  const group = Object.values(imports).find((functions) => WAITING_IMPORT in functions);
  if (!group) return false;
  const { Suspending } = /** @type {any} */ (WebAssembly);
  group[WAITING_IMPORT] = new Suspending(group[WAITING_IMPORT]);
  return true;
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
  return new HeadraceError("artifact_missing", `the engine could not be loaded from ${url}`, {
    detail,
    cause,
  });
}

/**
 * @param {unknown} error
 * @param {readonly string[]} log
 */
function startError(error, log) {
  if (error instanceof HeadraceError) return error;
  if (error instanceof RangeError) {
    return HeadraceError.from(error, "out_of_memory", "the engine's memory could not be reserved");
  }
  if (error instanceof WebAssembly.RuntimeError) return engineAborted(error, log);
  // What is left is glue and wasm that do not fit together: CompileError, LinkError, a missing function.
  return otherBuild({ reason: String(error) }, error);
}

/**
 * Files of two builds met, for instance because one of them came from an old cache.
 * @param {Record<string, unknown>} detail
 * @param {unknown} [cause]
 */
export function otherBuild(detail, cause) {
  const message = "the engine's files come from different builds: reload the page";
  return new HeadraceError("version_mismatch", message, { detail, cause });
}

/**
 * What is thrown by a call that should never throw: ggml gave up, or memory was corrupted.
 * @param {unknown} error
 * @param {readonly string[]} log
 */
export function engineAborted(error, log) {
  const reason = error instanceof Error ? error.message : String(error);
  return new HeadraceError("engine_aborted", `the engine stopped unexpectedly: ${reason}`, {
    detail: { reason, log: [...log] },
    cause: error,
  });
}
