// Asks the browser for its WebGPU adapter and writes down what it is and can: plain values, no opinion.
//
// Counterparts: gpu_requirements.js knows what the engine needs of these facts, native/webgpu/ makes the device
// of an adapter of its own. Runs in the page and in workers. Nothing is started: no device is asked for.

/**
 * What a WebGPU adapter tells of itself. Texts may be empty: browsers hide what identifies a user.
 * @typedef {object} AdapterInfo
 * @property {string} vendor "nvidia", "intel", …
 * @property {string} architecture "hopper", "gen-12lp", …
 * @property {string} device
 * @property {string} description
 */

/**
 * @typedef {object} AdapterFacts
 * @property {AdapterInfo} info
 * @property {readonly string[]} features
 * @property {Readonly<Record<string, number>>} limits by their WebGPU names
 * @property {boolean} fallback the browser itself calls it a fallback adapter
 * @property {boolean} software it is computed by the processor, as far as its facts tell
 */

/** Which of several GPUs the browser should prefer. @typedef {"low-power" | "high-performance"} PowerPreference */

/** What is used of `navigator.gpu`. @typedef {{requestAdapter(options?: object): Promise<any>}} Gpu */

/**
 * Either the adapter or the problem is null; both are while nobody has asked.
 * @typedef {{adapter: AdapterFacts | null, adapterProblem: string | null}} ProbedAdapter
 */

/** A driver that hangs must not hang a load that can do without it. */
const PROBE_TIMEOUT_MS = 5000;

/** How Google's, Mesa's and Microsoft's software renderers call themselves. */
const SOFTWARE = /swiftshader|llvmpipe|lavapipe|softpipe|basic render|\bwarp\b/i;

/**
 * Never rejects, and takes no longer than `timeoutMs`.
 * @param {PowerPreference} [powerPreference] without one the browser decides
 * @param {{gpu?: Gpu, timeoutMs?: number}} [options]
 * @returns {Promise<ProbedAdapter>} the problem is the part of a sentence behind a colon
 */
export async function probeAdapter(
  powerPreference,
  { gpu = Reflect.get(navigator, "gpu"), timeoutMs = PROBE_TIMEOUT_MS } = {},
) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  try {
    if (!gpu) return problem("this browser has no WebGPU");
    const late = new Promise((resolve) => {
      timer = setTimeout(() => resolve("late"), timeoutMs);
    });
    const adapter = await Promise.race([
      gpu.requestAdapter(powerPreference === undefined ? {} : { powerPreference }),
      late,
    ]);
    if (adapter === "late") return problem(`the browser did not answer within ${timeoutMs / 1000} s`);
    if (!adapter) return problem("the browser offers none");
    return { adapter: factsOf(adapter), adapterProblem: null };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return problem(`the browser failed to give one (${reason})`);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * @param {AdapterInfo} info
 * @returns {string} what people call the adapter
 */
export function adapterName({ vendor, architecture, device, description }) {
  return [vendor, architecture, description || device].filter((part) => part !== "").join(" ") || "unnamed";
}

/**
 * @param {string} why
 * @returns {ProbedAdapter}
 */
function problem(why) {
  return { adapter: null, adapterProblem: why };
}

/**
 * @param {any} adapter a GPUAdapter
 * @returns {AdapterFacts}
 */
function factsOf(adapter) {
  const info = infoOf(adapter.info ?? {});
  // Where the attribute is depends on the browser's age.
  const fallback = adapter.info?.isFallbackAdapter === true || adapter.isFallbackAdapter === true;
  return {
    info,
    features: [...adapter.features].map(String),
    limits: limitsOf(adapter.limits),
    fallback,
    software: fallback || Object.values(info).some((text) => SOFTWARE.test(text)),
  };
}

/**
 * @param {Record<string, unknown>} info
 * @returns {AdapterInfo}
 */
function infoOf({ vendor, architecture, device, description }) {
  const text = (/** @type {unknown} */ value) => (typeof value === "string" ? value : "");
  return {
    vendor: text(vendor),
    architecture: text(architecture),
    device: text(device),
    description: text(description),
  };
}

/**
 * @param {Record<string, unknown>} limits a GPUSupportedLimits, whose properties are its prototype's
 * @returns {Record<string, number>}
 */
function limitsOf(limits) {
  /** @type {Record<string, number>} */
  const numbers = {};
  for (const name in limits) {
    const value = limits[name];
    if (typeof value === "number") numbers[name] = value;
  }
  return numbers;
}
