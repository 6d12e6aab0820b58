// What this browser and this page can do, measured: plain values, no opinion.
//
// Counterpart: backend_choice.js decides on these facts. Not a list of browsers: nothing here reads a
// user agent string.

/** @import { AdapterFacts } from "./gpu_adapter.js" */

/**
 * @typedef {object} Environment
 * @property {boolean} crossOriginIsolated the page was served with COOP and COEP headers
 * @property {boolean} sharedArrayBuffer memory can be shared between threads
 * @property {number} hardwareConcurrency logical processors, 1 when the browser does not tell
 * @property {boolean} wasmSimd 128-bit SIMD in WebAssembly
 * @property {boolean} wasmThreads atomics in WebAssembly
 * @property {boolean} wasmExceptions exception handling in WebAssembly
 * @property {boolean} jspi WebAssembly can wait for a promise (JavaScript Promise Integration)
 * @property {boolean} secureContext https, or localhost
 * @property {boolean} opfs the origin-private file system
 * @property {boolean} webLocks Web Locks
 * @property {boolean} gpu WebGPU is exposed; says nothing about an adapter
 * @property {AdapterFacts | null} adapter null while nobody has asked for it (gpu_adapter.js), or without one
 * @property {string | null} adapterProblem why there is none, once it was asked for
 */

/**
 * A module of one function `() -> ()` with the given body, in bytes: what a browser validates, it can run.
 * @param {number[]} body instructions, without the end of the function
 * @param {number[]} [memory] a memory section
 */
function validates(body, memory = []) {
  const code = [0, ...body, 0x0b];
  return WebAssembly.validate(
    new Uint8Array([
      ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0], // magic, version
      ...[1, 4, 1, 0x60, 0, 0], // one type: () -> ()
      ...[3, 2, 1, 0], // one function of type 0
      ...memory,
      ...[10, code.length + 2, 1, code.length, ...code], // its code
    ]),
  );
}

const SIMD = [0x41, 0, 0xfd, 0x0f, 0x1a]; // i32.const 0, i8x16.splat, drop
const ATOMICS = [0x41, 0, 0xfe, 0x10, 2, 0, 0x1a]; // i32.const 0, i32.atomic.load, drop
const SHARED_MEMORY = [5, 4, 1, 3, 1, 1]; // one shared memory of one page
const TRY_CATCH = [0x06, 0x40, 0x19, 0x0b]; // try, catch_all, end

/**
 * Measures the environment of the caller. Cheap and without side effects.
 * @returns {Environment}
 */
export function measureEnvironment() {
  return {
    crossOriginIsolated: globalThis.crossOriginIsolated === true,
    sharedArrayBuffer: typeof SharedArrayBuffer === "function",
    hardwareConcurrency: navigator.hardwareConcurrency || 1,
    wasmSimd: validates(SIMD),
    wasmThreads: validates(ATOMICS, SHARED_MEMORY),
    wasmExceptions: validates(TRY_CATCH),
    jspi: "Suspending" in WebAssembly,
    secureContext: globalThis.isSecureContext === true,
    opfs: typeof navigator.storage?.getDirectory === "function",
    webLocks: typeof navigator.locks?.request === "function",
    gpu: "gpu" in navigator,
    adapter: null,
    adapterProblem: null,
  };
}
