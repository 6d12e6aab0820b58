// In which order a load is tried: on the GPU with as many layers as are expected to fit, with fewer, on the CPU.
//
// Counterparts: backend_choice.js has chosen the GPU before anything of the model was known; gpu_verdicts.js
// remembers, gpu_layers.js estimates, engine_worker.js carries an attempt out. Not for what breaks later: from a
// GPU that is lost while tokens are made, the page recovers.

import { HeadraceError } from "../errors.js";
import { adapterName } from "../gpu_adapter.js";
import { ALL_LAYERS } from "./gpu_layers.js";
import { NOTHING_KNOWN } from "./gpu_verdicts.js";

/** @import { AdapterFacts } from "../gpu_adapter.js" */
/** @import { LayerEstimate } from "./gpu_layers.js" */
/** @import { Failure, GpuVerdicts, LayerMemory, Verdicts } from "./gpu_verdicts.js" */
/** @import { EngineReady, GpuCommand, GpuUse } from "./protocol.js" */
/** @import { LoadOptions } from "headrace/declarations" */

/**
 * One load. `provenOps` are operations that need no comparison any more.
 * @typedef {{options: LoadOptions, provenOps: string[]}} LoadAttempt
 */

/** @typedef {Pick<GpuVerdicts, "read" | "prove" | "fail" | "rememberLayers">} VerdictStore */

/**
 * @typedef {object} Loading
 * @property {GpuCommand | null} gpu null: the CPU, and nothing else is tried
 * @property {LoadOptions} options of the load, without those of the GPU
 * @property {string} model what the number of layers is remembered by: the model and what its context takes
 * @property {() => LayerEstimate | null} layers null when the file does not tell
 * @property {(adapter: AdapterFacts) => Promise<VerdictStore>} verdicts on that adapter
 * @property {(attempt: LoadAttempt) => Promise<EngineReady>} load in an instance of its own: after a failure an
 *   engine can only be freed, and what the GPU held must be free before the next attempt
 */

/** How often the GPU is tried with fewer layers, the first time included. */
const MAX_TRIES = 3;

/**
 * What the CPU may well do better. Damaged files are among them: on the GPU an assertion of ggml's looks like
 * one, and if it was not, the CPU says the same of the file.
 */
const GPU_FAILURES = new Set([
  "gpu_mismatch",
  "gpu_failed",
  "device_lost",
  "kernel_missing",
  "environment_unsupported",
  "numeric_fault",
  "engine_aborted",
  "model_invalid",
  "internal",
]);

/**
 * @param {Loading} loading
 * @returns {Promise<{ready: EngineReady, reasons: string[]}>} reasons are sentences about what came of the GPU
 * @throws {HeadraceError} what the last attempt failed with
 */
export async function loadWhereItWorks(loading) {
  const { gpu, options, load } = loading;
  if (!gpu) return { ready: await load({ options, provenOps: [] }), reasons: [] };
  try {
    return await new GpuAttempts(gpu, loading, await loading.verdicts(gpu.adapter)).run();
  } catch (error) {
    if (gpu.required || !(error instanceof HeadraceError) || !isGpuFailure(error)) throw error;
    return { ready: await load({ options, provenOps: [] }), reasons: [whyCpu(error, gpu)] };
  }
}

/** A failure that was remembered, and not seen now. */
class KnownFailure extends HeadraceError {
  /** @param {Failure} failure */
  constructor({ code, message, detail, when }) {
    super(code, message, { detail });
    this.day = new Date(when).toISOString().slice(0, 10);
  }
}

class GpuAttempts {
  #gpu;
  #loading;
  #verdicts;
  /** @type {Verdicts} */ #known = NOTHING_KNOWN;

  /**
   * @param {GpuCommand} gpu
   * @param {Loading} loading
   * @param {VerdictStore} verdicts
   */
  constructor(gpu, loading, verdicts) {
    this.#gpu = gpu;
    this.#loading = loading;
    this.#verdicts = verdicts;
  }

  /** @returns {Promise<{ready: EngineReady, reasons: string[]}>} */
  async run() {
    const known = await this.#verdicts.read();
    // What fits is no verdict on what is computed: it is remembered whether operations are compared or not.
    this.#known = this.#gpu.selfTest === "auto" ? known : { ...NOTHING_KNOWN, models: known.models };
    const { failed } = this.#known;
    // Asked for by name, the GPU may prove itself: whatever is not known to agree is compared again.
    if (failed && !this.#gpu.required) throw new KnownFailure(failed);
    return this.#gpu.layers === "auto" ? this.#fit() : this.#asked(this.#gpu.layers);
  }

  /** @param {number} layers */
  async #asked(layers) {
    const ready = await this.#try(layers);
    return { ready, reasons: [...layersReason(ready.gpu, "as asked"), ...uncheckedReason(ready.gpu)] };
  }

  async #fit() {
    const { model, layers } = this.#loading;
    const facts = layers();
    const before = this.#known.models.get(model);
    let count = firstCount(before, facts?.estimate ?? ALL_LAYERS);
    /** @type {number | null} */
    let tooMany = before?.tooMany ?? null;
    for (let tries = 1; ; tries++) {
      try {
        const ready = await this.#try(count);
        await this.#verdicts.rememberLayers(model, { worked: count, tooMany });
        const why = tooMany === null ? "more are not expected to fit" : "more did not fit";
        return { ready, reasons: [...layersReason(ready.gpu, why), ...uncheckedReason(ready.gpu)] };
      } catch (error) {
        if (!isGpuMemory(error)) throw error;
        tooMany = count === ALL_LAYERS ? (facts?.total ?? null) : count;
        if (tooMany !== null) await this.#verdicts.rememberLayers(model, { worked: null, tooMany });
        const fewer = Math.floor((tooMany ?? 0) / 2);
        if (tries === MAX_TRIES || fewer < 1) throw error;
        count = fewer;
      }
    }
  }

  /**
   * @param {number} gpuLayers
   * @returns {Promise<EngineReady>}
   */
  async #try(gpuLayers) {
    const { options, load } = this.#loading;
    const { selfTest: gpuSelfTest } = this.#gpu;
    try {
      const ready = await load({
        options: { ...options, backend: "webgpu", gpuLayers, gpuSelfTest },
        provenOps: [...this.#known.proven],
      });
      const proven = ready.gpu?.selfTest.proven ?? [];
      if (gpuSelfTest !== "skip" && proven.length > 0) await this.#verdicts.prove(proven);
      return ready;
    } catch (error) {
      // Only a wrong answer is held against an adapter: a device can be lost for any reason.
      if (error instanceof HeadraceError && error.code === "gpu_mismatch")
        await this.#verdicts.fail(error.toWire());
      throw error;
    }
  }
}

/**
 * @param {LayerMemory | undefined} before
 * @param {number} estimate
 */
function firstCount(before, estimate) {
  if (!before) return estimate;
  if (before.worked !== null) return before.worked;
  const most = Math.max(1, Math.floor((before.tooMany ?? 2) / 2));
  return estimate === ALL_LAYERS ? most : Math.min(estimate, most);
}

/**
 * @param {unknown} error
 * @returns {boolean} whether fewer layers may help
 */
function isGpuMemory(error) {
  return error instanceof HeadraceError && error.code === "out_of_memory" && error.detail.device === "gpu";
}

/** @param {HeadraceError} error */
function isGpuFailure(error) {
  return GPU_FAILURES.has(error.code) || isGpuMemory(error);
}

/**
 * @param {GpuUse | undefined} use
 * @param {string} why there are not more
 * @returns {string[]}
 */
function layersReason(use, why) {
  if (!use || use.layers >= use.layersTotal) return [];
  return [`${use.layers} of ${use.layersTotal} layers on the GPU: ${why}.`];
}

/**
 * @param {GpuUse | undefined} use
 * @returns {string[]}
 */
function uncheckedReason(use) {
  const unchecked = use?.selfTest?.unchecked ?? [];
  if (unchecked.length === 0) return [];
  return [`On the GPU, but not comparable with the CPU: ${unchecked.join("; ")}.`];
}

/**
 * @param {HeadraceError} error
 * @param {GpuCommand} gpu
 * @returns {string}
 */
function whyCpu(error, { adapter }) {
  const name = adapterName(adapter.info);
  return error instanceof KnownFailure
    ? `CPU: on ${error.day} the GPU (${name}) was found to fail: ${error.message}.`
    : `CPU after all, because the GPU (${name}) failed: ${error.message}.`;
}
