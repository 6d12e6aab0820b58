// The description of a model that runs in this browser: options are checked here, before anything starts.
//
// Counterpart: local_session.js runs what is described here. Not the place where generation options are
// checked: the engine does that.

import { chooseBackend } from "../backend_choice.js";
import { measureEnvironment } from "../environment.js";
import { HeadraceError } from "../errors.js";
import { LocalSession } from "./local_session.js";

/** @import { BackendRequest } from "../backend_choice.js" */
/** @import { ModelSource, Progress } from "../worker/protocol.js" */
/** @import { LoadOptions } from "headrace/declarations" */

/**
 * @typedef {object} LocalOptions
 * @property {string | URL | File | Blob} model a GGUF file, or its address (relative to the page)
 * @property {"auto" | "cpu" | "webgpu"} [backend] default "auto"
 * @property {"auto" | "st" | "mt"} [artifact] default "auto": multi-thread where the page allows it
 * @property {number} [threads] default 0: up to 4, as many as the browser offers; more than it offers is
 *   refused with environment_unsupported
 * @property {{size?: number, slots?: number}} [context] tokens of context, and requests at a time
 * @property {boolean} [selfTest] default true: six tokens at load, to prove that all of the model is computed
 * @property {(progress: Progress) => void} [onProgress] called at most ten times a second per phase
 * @property {AbortSignal} [signal] cancels the download and the load
 * @property {string | URL} [artifactsUrl] folder of the engine's files; default "artifacts/" beside index.js
 */

/**
 * Checked options.
 * @typedef {object} LocalPlan
 * @property {ModelSource} model
 * @property {BackendRequest} request
 * @property {LoadOptions} load
 * @property {(progress: Progress) => void} onProgress
 * @property {AbortSignal | undefined} signal
 * @property {string} artifactsUrl
 */

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
   * @returns {Promise<LocalSession>}
   */
  async open(id, signal) {
    return LocalSession.open(id, this.#plan, chooseBackend(measureEnvironment(), this.#plan.request), signal);
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
    backend = "auto",
    artifact = "auto",
    threads = 0,
    context = {},
    selfTest,
    onProgress,
    signal,
    artifactsUrl,
    ...unknown
  } = options;
  refuseUnknown(unknown, "");
  requireOneOf("backend", backend, ["auto", "cpu", "webgpu"]);
  requireOneOf("artifact", artifact, ["auto", "st", "mt"]);
  requireType("threads", Number.isInteger(threads) && threads >= 0, "a whole number from 0 (automatic) up");
  requireType("selfTest", selfTest === undefined || typeof selfTest === "boolean", "true or false");
  requireType("onProgress", onProgress === undefined || typeof onProgress === "function", "a function");
  requireType("signal", signal === undefined || signal instanceof AbortSignal, "an AbortSignal");
  const folder = resolve("artifactsUrl", artifactsUrl ?? new URL("../artifacts/", import.meta.url));

  return {
    model: modelSource(model),
    request: { backend, artifact, threads },
    load: { ...loadOptions(context), ...(selfTest !== undefined && { selfTest }) },
    onProgress: onProgress ?? (() => {}),
    signal,
    artifactsUrl: folder.endsWith("/") ? folder : `${folder}/`,
  };
}

/**
 * Ranges are the engine's business; here the names are mapped.
 * @param {{size?: number, slots?: number}} context
 * @returns {LoadOptions}
 */
function loadOptions(context) {
  requireType("context", typeof context === "object" && context !== null, "an object");
  const { size, slots, ...unknown } = context;
  refuseUnknown(unknown, "context.");
  requireType("context.size", size === undefined || typeof size === "number", "a number");
  requireType("context.slots", slots === undefined || typeof slots === "number", "a number");
  return { ...(size !== undefined && { contextSize: size }), ...(slots !== undefined && { slots }) };
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
 * @param {LocalOptions["model"]} model
 * @returns {ModelSource}
 */
function modelSource(model) {
  if (model instanceof Blob)
    return { kind: "blob", blob: model, name: model instanceof File ? model.name : "the blob" };
  if ((typeof model === "string" && model !== "") || model instanceof URL)
    return { kind: "url", url: resolve("model", model) };
  throw invalid("model", 'the option "model" must be a URL, a File or a Blob');
}

/**
 * @param {string} name
 * @param {string | URL} address relative to the page
 */
function resolve(name, address) {
  try {
    return new URL(address, globalThis.document?.baseURI ?? globalThis.location.href).href;
  } catch (error) {
    throw invalid(name, `the option "${name}" is not a URL: ${address}`);
  }
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

/**
 * @param {string} option
 * @param {string} message
 */
function invalid(option, message) {
  return new HeadraceError("invalid_option", message, { detail: { option } });
}
