// The description of a model that runs in this browser: options are checked here, before anything starts.
//
// Counterpart: local_session.js runs what is described here. Not the place where generation options are
// checked: the engine does that.

import { chooseBackend, needsAdapter } from "../backend_choice.js";
import { measureEnvironment } from "../environment.js";
import { probeAdapter } from "../gpu_adapter.js";
import { absolute, invalid, modelInput } from "../models/model_input.js";
import { askToPersist } from "../models/persistence.js";
import { LocalSession } from "./local_session.js";

/** @import { BackendRequest } from "../backend_choice.js" */
/** @import { PowerPreference } from "../gpu_adapter.js" */
/** @import { ModelLike } from "../models/model_input.js" */
/** @import { ModelInput } from "../models/store_protocol.js" */
/** @import { Environment } from "../environment.js" */
/** @import { GpuOptions, ModelFiles, Progress, StoreOptions } from "../worker/protocol.js" */
/** @import { EndpointContext } from "./endpoint.js" */
/** @import { LoadOptions } from "headrace/declarations" */

/**
 * Load options that have a name of their own here, or no meaning in a page.
 * @typedef {"contextSize" | "slots" | "threads" | "prefixCacheFolder" | "prefixCacheDiskBytes" | "backend"
 *   | "gpuLayers" | "gpuSelfTest"} OtherOption
 */

/** Load options that are passed on as they are. @typedef {Omit<LoadOptions, OtherOption>} EngineOptions */

/**
 * A LoRA adapter: requests choose it by its name, `scale` (default 1) is its weight.
 * @typedef {{name: string, model: ModelLike, scale?: number}} LocalAdapter
 */

/**
 * @typedef {object} OwnOptions
 * @property {ModelLike} model a URL (relative to the page), "hf:owner/repo/file.gguf", a File or a Blob, the
 *   shards of a model in any order, or a stored model or its id
 * @property {ModelLike} [draftModel] a small model of the same vocabulary, for `speculation: "draft"`
 * @property {LocalAdapter[]} [adapters]
 * @property {"auto" | "memory" | "keep"} [store] default "auto": what has a URL is kept for the next time, a
 *   File is used where it is. "memory" keeps nothing, "keep" copies Files into the store too
 * @property {Record<string, string>} [headers] sent with every request for `model`, for instance a token;
 *   never stored
 * @property {string | (string | null)[]} [sha256] what `model` must have, one for each of its files
 * @property {boolean} [evict] whether stored models that nobody uses may be deleted to make room, the least
 *   recently used first; by default only if the client has a limit
 * @property {string | URL} [huggingFace] where "hf:" leads; default https://huggingface.co
 * @property {"auto" | "cpu" | "webgpu"} [backend] default "auto": WebGPU where it has all that is needed and
 *   computes what the CPU does, else the CPU, and the reasons say why. "webgpu" is WebGPU or an error
 * @property {"auto" | number} [gpuLayers] layers that the GPU computes, the output layer counted as one, from
 *   the output backwards; the CPU computes the rest. Default "auto": as many as fit. A number is taken as it
 *   is: 0 leaves all weights in the engine's memory
 * @property {"auto" | "force" | "skip"} [gpuSelfTest] whether loading compares what the model's operations give
 *   on the GPU with what they give on the CPU. Default "auto": those of which this browser does not know yet
 *   that they agree on this adapter. "force" compares all, also where they are known to differ; "skip" none
 * @property {PowerPreference} [powerPreference] which GPU the browser should prefer; by default it decides
 * @property {boolean} [allowSoftwareAdapter] whether "auto" may take a WebGPU adapter that is computed by the
 *   processor, which is slower than the CPU path; for tests. Default false
 * @property {"auto" | "st" | "mt"} [artifact] default "auto": multi-thread where the page allows it
 * @property {number} [threads] default 0: up to 4, as many as the browser offers; more than it offers is
 *   refused with environment_unsupported
 * @property {{size?: number, slots?: number}} [context] tokens of context, and requests at a time
 * @property {(progress: Progress) => void} [onProgress] called at most ten times a second per phase and file
 * @property {AbortSignal} [signal] cancels the download and the load
 * @property {string | URL} [artifactsUrl] folder of the engine's files; default "artifacts/" beside index.js
 */

/** @typedef {OwnOptions & EngineOptions} LocalOptions */

/**
 * Checked options.
 * @typedef {object} LocalPlan
 * @property {ModelFiles<ModelInput>} files
 * @property {Omit<StoreOptions, "limitBytes">} store
 * @property {BackendRequest} request
 * @property {GpuOptions} gpu
 * @property {LoadOptions} load
 * @property {(progress: Progress) => void} onProgress
 * @property {AbortSignal | undefined} signal
 * @property {string} artifactsUrl
 */

/**
 * Every option that is passed on, with its type; which ranges and choices there are, the engine knows.
 * @type {Readonly<Record<keyof EngineOptions, "boolean" | "number" | "string">>}
 */
const ENGINE_OPTIONS = {
  batchSize: "number",
  schedule: "string",
  queueLimit: "number",
  speculation: "string",
  draftTokens: "number",
  unifiedCache: "boolean",
  slidingCache: "boolean",
  prefixCacheBytes: "number",
  selfTest: "boolean",
  healthWatch: "string",
};

const TYPE_NAMES = { boolean: "true or false", number: "a number", string: "a string" };

/** Made by `Endpoint.local`. */
export class LocalEndpoint {
  /** @type {LocalPlan} */ #plan;

  /** @param {LocalOptions} options */
  constructor(options) {
    this.#plan = planLocal(options);
  }

  /**
   * @param {string} id
   * @param {AbortSignal} signal
   * @param {EndpointContext} [context]
   * @returns {Promise<LocalSession>}
   */
  async open(id, signal, context) {
    const choice = chooseBackend(await measured(this.#plan.request), this.#plan.request);
    if (keepsAnything(this.#plan)) askToPersist();
    const files = context ? await withFilesInMemory(this.#plan.files, context.models) : this.#plan.files;
    const store = { ...this.#plan.store, limitBytes: context?.limitBytes ?? null };
    return LocalSession.open(id, { ...this.#plan, files, store }, choice, signal);
  }
}

/**
 * @param {LocalOptions} options
 * @returns {LocalPlan}
 */
function planLocal(options) {
  if (typeof options !== "object" || options === null) {
    throw invalid("model", "Endpoint.local needs an object of options");
  }
  const {
    model,
    draftModel,
    adapters,
    backend = "auto",
    gpuLayers,
    gpuSelfTest,
    powerPreference,
    allowSoftwareAdapter,
    artifact = "auto",
    threads = 0,
    context = {},
    onProgress,
    signal,
    artifactsUrl,
    store = "auto",
    headers,
    sha256,
    evict,
    huggingFace,
    ...engine
  } = options;
  const load = { ...contextOptions(context), ...engineOptions(engine) };
  requireOneOf("backend", backend, ["auto", "cpu", "webgpu"]);
  const gpu = gpuOptions(backend, { gpuLayers, gpuSelfTest, powerPreference, allowSoftwareAdapter });
  requireOneOf("artifact", artifact, ["auto", "st", "mt"]);
  requireType("threads", Number.isInteger(threads) && threads >= 0, "a whole number from 0 (automatic) up");
  requireType("onProgress", onProgress === undefined || typeof onProgress === "function", "a function");
  requireType("signal", signal === undefined || signal instanceof AbortSignal, "an AbortSignal");
  requireOneOf("store", store, ["auto", "memory", "keep"]);
  requireType("evict", evict === undefined || typeof evict === "boolean", "true or false");
  requireDraft(load.speculation === "draft", draftModel !== undefined);
  const folder = absolute("artifactsUrl", artifactsUrl ?? new URL("../artifacts/", import.meta.url));

  return {
    files: {
      model: modelInput("model", model, { headers, sha256 }),
      ...(draftModel !== undefined && { draftModel: modelInput("draftModel", draftModel) }),
      ...(adapters !== undefined && { adapters: adapterInputs(adapters) }),
    },
    store: {
      kind: store,
      ...(evict !== undefined && { evict }),
      ...(huggingFace !== undefined && { huggingFace: absolute("huggingFace", huggingFace) }),
    },
    request: {
      ...{ backend, artifact, threads },
      ...(powerPreference !== undefined && { powerPreference }),
      ...(allowSoftwareAdapter !== undefined && { allowSoftwareAdapter }),
    },
    gpu,
    load,
    onProgress: onProgress ?? (() => {}),
    signal,
    artifactsUrl: folder.endsWith("/") ? folder : `${folder}/`,
  };
}

/**
 * @param {BackendRequest} request
 * @returns {Promise<Environment>} with the adapter, where the choice depends on it
 */
async function measured(request) {
  const facts = measureEnvironment();
  if (!needsAdapter(facts, request)) return facts;
  return { ...facts, ...(await probeAdapter(request.powerPreference)) };
}

/**
 * @param {BackendRequest["backend"]} backend
 * @param {Pick<OwnOptions, "gpuLayers" | "gpuSelfTest" | "powerPreference" | "allowSoftwareAdapter">} options
 * @returns {GpuOptions}
 */
function gpuOptions(backend, options) {
  const given = Object.entries(options).find(([, value]) => value !== undefined);
  if (given && backend === "cpu") {
    throw invalid(given[0], `the option "${given[0]}" is of no use with the backend "cpu"`);
  }
  const { gpuLayers = "auto", gpuSelfTest = "auto", powerPreference, allowSoftwareAdapter } = options;
  const isCount = Number.isInteger(gpuLayers) && Number(gpuLayers) >= 0;
  requireType("gpuLayers", gpuLayers === "auto" || isCount, '"auto" or a whole number from 0 up');
  requireOneOf("gpuSelfTest", gpuSelfTest, ["auto", "force", "skip"]);
  if (powerPreference !== undefined) {
    requireOneOf("powerPreference", powerPreference, ["low-power", "high-performance"]);
  }
  const isFlag = allowSoftwareAdapter === undefined || typeof allowSoftwareAdapter === "boolean";
  requireType("allowSoftwareAdapter", isFlag, "true or false");
  return { layers: gpuLayers, selfTest: gpuSelfTest };
}

/**
 * Ranges are the engine's business; here the names are mapped.
 * @param {{size?: number, slots?: number}} context
 * @returns {LoadOptions}
 */
function contextOptions(context) {
  requireType("context", typeof context === "object" && context !== null, "an object");
  const { size, slots, ...unknown } = context;
  refuseUnknown(unknown, "context.");
  requireType("context.size", size === undefined || typeof size === "number", "a number");
  requireType("context.slots", slots === undefined || typeof slots === "number", "a number");
  return { ...(size !== undefined && { contextSize: size }), ...(slots !== undefined && { slots }) };
}

/**
 * @param {EngineOptions} options
 * @returns {EngineOptions} those that are given
 */
function engineOptions(options) {
  for (const name of ["prefixCacheFolder", "prefixCacheDiskBytes"]) {
    if (name in options) throw invalid(name, `the option "${name}" is refused: a page has no folder yet`);
  }
  for (const [name, alias] of [
    ["contextSize", "context.size"],
    ["slots", "context.slots"],
  ]) {
    if (name in options)
      throw invalid(name, `the option "${name}" is called "${alias}" for a local endpoint`);
  }
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  for (const [name, value] of given) {
    if (!Object.hasOwn(ENGINE_OPTIONS, name)) refuseUnknown({ [name]: value }, "");
    const type = ENGINE_OPTIONS[/** @type {keyof EngineOptions} */ (name)];
    requireType(name, typeof value === type, TYPE_NAMES[type]);
  }
  return Object.fromEntries(given);
}

/**
 * As the engine would say, but before anything is fetched.
 * @param {boolean} wanted
 * @param {boolean} given
 */
function requireDraft(wanted, given) {
  if (wanted && !given) throw invalid("draftModel", 'the speculation "draft" needs a "draftModel"');
  if (given && !wanted) throw invalid("draftModel", 'a "draftModel" is of use only with speculation "draft"');
}

/**
 * @param {LocalAdapter[]} adapters
 * @returns {NonNullable<ModelFiles<ModelInput>["adapters"]>}
 */
function adapterInputs(adapters) {
  requireType("adapters", Array.isArray(adapters), "a list");
  const names = new Set();
  return adapters.map((adapter, index) => {
    const option = `adapters[${index}]`;
    requireType(option, typeof adapter === "object" && adapter !== null, "an object with name and model");
    const { name, model, scale, ...unknown } = adapter;
    refuseUnknown(unknown, `${option}.`);
    requireType(`${option}.name`, typeof name === "string" && name !== "", "a string that is not empty");
    requireType(`${option}.name`, !names.has(name), "a name of its own");
    requireType(`${option}.scale`, scale === undefined || Number.isFinite(scale), "a number");
    names.add(name);
    return { name, model: modelInput(`${option}.model`, model), ...(scale !== undefined && { scale }) };
  });
}

/**
 * @param {string} option
 * @param {boolean} holds
 * @param {string} type
 */
function requireType(option, holds, type) {
  if (!holds) throw invalid(option, `the option "${option}" must be ${type}`);
}

/**
 * Case D7: where nothing can be kept on disk, the engine's worker is handed what the page has of stored
 * models.
 * @param {ModelFiles<ModelInput>} files
 * @param {EndpointContext["models"]} models
 * @returns {Promise<ModelFiles<ModelInput>>}
 */
async function withFilesInMemory({ model, draftModel, adapters }, models) {
  /** @type {(input: ModelInput) => Promise<ModelInput>} */
  const resolved = async (input) => {
    const files = input.kind === "stored" ? await models.filesInMemory(input.id) : null;
    return files && input.kind === "stored" ? { kind: "files", files, id: input.id } : input;
  };
  const all = (adapters ?? []).map(async (adapter) => ({ ...adapter, model: await resolved(adapter.model) }));
  return {
    model: await resolved(model),
    ...(draftModel && { draftModel: await resolved(draftModel) }),
    ...(adapters && { adapters: await Promise.all(all) }),
  };
}

/**
 * @param {LocalPlan} plan
 * @returns {boolean} whether something may be written to the store
 */
function keepsAnything({ files: { model, draftModel, adapters = [] }, store }) {
  const kinds = [model, draftModel, ...adapters.map((adapter) => adapter.model)].map((input) => input?.kind);
  return (
    store.kind !== "memory" &&
    (kinds.includes("remote") || (store.kind === "keep" && kinds.includes("files")))
  );
}

/**
 * @param {object} unknown
 * @param {string} prefix
 */
function refuseUnknown(unknown, prefix) {
  const [name] = Object.keys(unknown);
  if (name !== undefined)
    throw invalid(prefix + name, `there is no option "${prefix}${name}" for a local endpoint`);
}

/**
 * @param {string} name
 * @param {string} value
 * @param {string[]} allowed
 */
function requireOneOf(name, value, allowed) {
  if (allowed.includes(value)) return;
  const list = allowed.map((one) => `"${one}"`).join(", ");
  throw invalid(name, `the option "${name}" must be one of ${list}`);
}
