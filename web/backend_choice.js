// Which artifact, backend and number of threads an endpoint gets, and why: a pure function.
//
// Counterpart: environment.js measures the facts. Not the place where anything is started or probed, so
// that every case can be written down as a table (tests/web/backend_choice.test.js).

import { HeadraceError } from "./errors.js";

/** @import { Environment } from "./environment.js" */

/**
 * @typedef {object} BackendRequest
 * @property {"auto" | "cpu" | "webgpu"} backend
 * @property {"auto" | "st" | "mt"} artifact single-thread or multi-thread build of the engine
 * @property {number} threads 0 lets the choice decide; more than there can be is refused, except that a
 *   page which gets the single-thread build by `artifact: "auto"` has one, and a reason that says so
 */

/**
 * @typedef {object} BackendChoice
 * @property {"st" | "mt"} artifact
 * @property {"cpu"} backend
 * @property {number} threads at least 1
 * @property {readonly string[]} reasons one sentence per decision, for people
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
  };
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
 * @returns {{value: "cpu", reason: string}}
 */
function chooseProcessor(facts, request) {
  if (request.backend === "cpu") return { value: "cpu", reason: "CPU, as asked." };
  if (request.backend === "auto") return { value: "cpu", reason: "CPU: this build has no WebGPU backend." };
  const missing = ["WebGPU backend in this build"];
  if (!facts.gpu) missing.push("WebGPU in this browser (navigator.gpu)");
  throw unsupported(
    `the backend "webgpu" was asked for, but there is no ${missing.join(", and no ")}`,
    missing,
  );
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
