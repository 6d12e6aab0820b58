// Which artifact, backend and number of threads an endpoint gets, and why: a pure function.
//
// Counterparts: environment.js and gpu_adapter.js measure the facts; the worker may still turn from the GPU to
// the CPU by what it finds there (worker/backend_attempts.js). Not the place where anything is started or
// probed, so that every case can be written down as a table (tests/web/backend_choice.test.js).

import { HeadraceError } from "./errors.js";
import { adapterName } from "./gpu_adapter.js";
import { gpuObstacles } from "./gpu_requirements.js";

/** @import { Environment } from "./environment.js" */
/** @import { AdapterFacts, PowerPreference } from "./gpu_adapter.js" */

/**
 * @typedef {object} BackendRequest
 * @property {"auto" | "cpu" | "webgpu"} backend
 * @property {"auto" | "st" | "mt"} artifact single-thread or multi-thread build of the engine
 * @property {number} threads 0 lets the choice decide; more than there can be is refused, except that a
 *   page which gets the single-thread build by `artifact: "auto"` has one, and a reason that says so
 * @property {PowerPreference} [powerPreference] by default the browser's
 * @property {boolean} [allowSoftwareAdapter] whether "auto" may take an adapter that is computed by the
 *   processor; default false
 */

/**
 * @typedef {object} GpuChoice
 * @property {AdapterFacts} adapter
 * @property {PowerPreference | null} powerPreference with which it was asked for
 * @property {boolean} required it was asked for by name: what fails on it is an error, and no reason for the CPU
 */

/**
 * @typedef {object} BackendChoice
 * @property {"st" | "mt"} artifact
 * @property {"cpu" | "webgpu"} backend
 * @property {number} threads at least 1; with a GPU they compute what is left to the CPU
 * @property {readonly string[]} reasons one sentence per decision, for people
 * @property {GpuChoice | null} gpu null on the CPU
 */

/** More threads than this have not been measured to help a small model, and starve the page. */
const MAX_DEFAULT_THREADS = 4;

/**
 * @param {Environment} facts
 * @param {BackendRequest} request
 * @returns {BackendChoice}
 * @throws {HeadraceError} environment_unsupported, when what was asked for by name cannot be had or
 *   nothing can run at all; invalid_option, when the request contradicts itself
 */
export function chooseBackend(facts, request) {
  requireWebAssembly(facts);
  const backend = chooseProcessor(facts, request);
  const artifact = chooseArtifact(facts, request);
  const threads = chooseThreads(facts, request, artifact.value);
  return {
    artifact: artifact.value,
    backend: backend.value,
    threads: threads.value,
    reasons: [backend.reason, artifact.reason, threads.reason],
    gpu: backend.gpu,
  };
}

/**
 * The same without the GPU, which was chosen and has failed.
 * @param {BackendChoice} choice
 * @param {string} reason
 * @returns {BackendChoice}
 */
export function turnToCpu({ artifact, threads, reasons }, reason) {
  const [, ...others] = reasons;
  return { artifact, backend: "cpu", threads, reasons: [reason, ...others], gpu: null };
}

/**
 * Whether the choice could depend on the adapter: asking for one takes time, and may wake a GPU.
 * @param {Environment} facts
 * @param {BackendRequest} request
 */
export function needsAdapter({ gpu, jspi }, { backend }) {
  // Asked by name, everything that is missing is told, not the first thing only.
  return gpu && (backend === "webgpu" || (backend === "auto" && jspi));
}

/** @param {Environment} facts */
function requireWebAssembly(facts) {
  const missing = [];
  if (!facts.wasmSimd) missing.push("128-bit SIMD");
  if (!facts.wasmExceptions) missing.push("exception handling");
  if (missing.length === 0) return;
  throw unsupported(
    `this browser's WebAssembly lacks ${missing.join(" and ")}, which the engine needs`,
    missing,
  );
}

/**
 * @param {Environment} facts
 * @param {BackendRequest} request
 * @returns {{value: "cpu" | "webgpu", reason: string, gpu: GpuChoice | null}}
 */
function chooseProcessor(facts, request) {
  if (request.backend === "cpu") return onCpu("CPU, as asked.");
  const required = request.backend === "webgpu";
  const obstacles = gpuObstacles(facts);
  if (required && obstacles.length > 0) {
    const texts = obstacles.map(({ text }) => text).join("; ");
    throw unsupported(
      `the backend "webgpu" was asked for, but ${texts}`,
      obstacles.map(({ missing }) => missing),
    );
  }
  const { adapter } = facts;
  if (obstacles.length > 0) return onCpu(`CPU: ${obstacles[0].text}.`);
  if (!adapter) throw new HeadraceError("internal", "the WebGPU adapter was not asked for");

  const name = adapterName(adapter.info);
  if (adapter.software && !required && !request.allowSoftwareAdapter) {
    return onCpu(
      `CPU: the WebGPU adapter (${name}) is a software one, which computes on the CPU too, but slower.`,
    );
  }
  return {
    value: "webgpu",
    reason: required ? `WebGPU, as asked: ${name}.` : `WebGPU: the adapter (${name}) has what is needed.`,
    gpu: { adapter, powerPreference: request.powerPreference ?? null, required },
  };
}

/**
 * @param {string} reason
 * @returns {{value: "cpu", reason: string, gpu: null}}
 */
function onCpu(reason) {
  return { value: "cpu", reason, gpu: null };
}

/**
 * @param {Environment} facts
 * @param {BackendRequest} request
 * @returns {{value: "st" | "mt", reason: string}}
 */
function chooseArtifact(facts, request) {
  if (request.artifact === "st") return { value: "st", reason: "Single-thread engine, as asked." };
  const obstacle = threadsObstacle(facts);
  if (obstacle === null) {
    const why = request.artifact === "mt" ? "as asked" : "the page is cross-origin isolated";
    return { value: "mt", reason: `Multi-thread engine: ${why}.` };
  }
  if (request.artifact === "mt") {
    throw unsupported(`the multi-thread engine was asked for, but ${obstacle.text}`, [obstacle.missing]);
  }
  return { value: "st", reason: `Single-thread engine: ${obstacle.text}.` };
}

/**
 * @param {Environment} facts
 * @returns {{text: string, missing: string} | null} what keeps threads from running
 */
function threadsObstacle(facts) {
  if (!facts.wasmThreads) {
    return { text: "this browser's WebAssembly has no threads", missing: "WebAssembly threads" };
  }
  if (facts.crossOriginIsolated && facts.sharedArrayBuffer) return null;
  if (!facts.secureContext) {
    return {
      text: "the page is not a secure context: threads need https, or localhost",
      missing: "secure context",
    };
  }
  return {
    text:
      "the page is not cross-origin isolated: its server must send the headers " +
      "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
    missing: "cross-origin isolation",
  };
}

/**
 * @param {Environment} facts
 * @param {BackendRequest} request
 * @param {"st" | "mt"} artifact
 * @returns {{value: number, reason: string}}
 */
function chooseThreads(facts, request, artifact) {
  const { threads: asked } = request;
  const cores = facts.hardwareConcurrency;
  if (request.artifact === "st" && asked > 1) {
    throw new HeadraceError(
      "invalid_option",
      `${asked} threads were asked for, but the artifact "st" has one: leave out "threads" or "artifact"`,
      { detail: { option: "threads" } },
    );
  }
  if (artifact === "st") {
    const missed = asked > 1 ? `; ${asked} were asked for` : "";
    return { value: 1, reason: `1 thread: the single-thread engine has no more${missed}.` };
  }
  if (asked > cores) {
    throw unsupported(`${count(asked)} were asked for, but this browser offers ${cores}`, [count(asked)]);
  }
  if (asked > 0) return { value: asked, reason: `${count(asked)}, as asked.` };
  if (cores > MAX_DEFAULT_THREADS) {
    return {
      value: MAX_DEFAULT_THREADS,
      reason: `${count(MAX_DEFAULT_THREADS)} of the ${cores} the browser offers: the default stops there.`,
    };
  }
  return { value: cores, reason: `${count(cores)}: as many as the browser offers.` };
}

/** @param {number} threads */
function count(threads) {
  return threads === 1 ? "1 thread" : `${threads} threads`;
}

/**
 * @param {string} message
 * @param {string[]} missing
 */
function unsupported(message, missing) {
  return new HeadraceError("environment_unsupported", message, { detail: { missing } });
}
