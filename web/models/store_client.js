// `client.models`: the page's end of the model store. Starts a worker when it is first used.
//
// Counterpart: store_worker.js; the messages are told in store_protocol.js. Holds no model and no state of
// one: every answer is the store's own.

import { deferred } from "../deferred.js";
import { HeadraceError } from "../errors.js";
import { invalid, modelInput, remoteInput } from "./model_input.js";
import { askToPersist, isPersisted } from "./persistence.js";

/** @import { ModelAddress, RemoteOptions } from "./model_input.js" */
/** @import { StoreCalls, StoreCommand, StoreEvent, StoreMethod, StoreUsage } from "./store_protocol.js" */
/** @import { Manifest, StoredModel, StoreProgress } from "./types.js" */

/**
 * @typedef {object} CallOptions
 * @property {(progress: StoreProgress) => void} [onProgress] called at most ten times a second
 * @property {AbortSignal} [signal] ends the call; what was downloaded so far is continued by the next one
 */

/**
 * @typedef {object} RoomOptions
 * @property {boolean} [pinned] whether the model is never evicted
 * @property {boolean} [evict] whether models that nobody uses may be deleted when there is no room, the least
 *   recently used first; by default only if the client has a limit
 */

/**
 * @typedef {object} OwnDownloadOptions
 * @property {boolean} [refresh] asks the server whether a stored model has changed; default false
 * @property {ModelAddress} [projector] the model's multimodal projector, stored with it and deleted with it
 * @property {string | URL} [huggingFace] where "hf:" leads; default https://huggingface.co
 */

/** `sha256` is what the files must have, one for each. @typedef {CallOptions & RoomOptions & RemoteOptions
 *   & OwnDownloadOptions} DownloadOptions */

/**
 * `name` is for people; by default the file's.
 * @typedef {CallOptions & RoomOptions & {name?: string}} ImportOptions
 */

/** A stored model, or its id. @typedef {string | Pick<Manifest, "id">} ModelRef */

/** @typedef {ReturnType<typeof deferred<any>> & {onProgress?: (progress: StoreProgress) => void}} Pending */

/** Made by the client. */
export class ClientModels {
  #limitBytes;
  /** @type {Worker | null} */ #worker = null;
  /** @type {Map<number, Pending>} */ #pending = new Map();
  #nextId = 1;
  #closed = false;
  /** @type {AbortController | null} */ #lockWatch = null;

  /** @param {{limitBytes?: number | null}} [options] */
  constructor({ limitBytes = null } = {}) {
    this.#limitBytes = limitBytes;
  }

  /** @returns {Promise<StoredModel[]>} what is stored, the latest first */
  list() {
    return this.#call("list", {});
  }

  /** @returns {Promise<StoreUsage & {persisted: boolean}>} how much room there is, and what fills it */
  async usage() {
    const [usage, persisted] = await Promise.all([this.#call("usage", {}), isPersisted()]);
    return { ...usage, persisted };
  }

  /**
   * Downloads a model and keeps it. One that is stored already is returned without asking the network.
   * @param {ModelAddress | ModelAddress[]} source a URL, "hf:owner/repo/file.gguf", or the shards of a model;
   *   the name of one shard stands for all
   * @param {DownloadOptions} [options]
   * @returns {Promise<Manifest>}
   * @throws {HeadraceError} download_failed, model_invalid, model_truncated, hash_mismatch, storage_full,
   *   storage_failed, cancelled
   */
  async download(source, options = {}) {
    const { headers, sha256, refresh = false, projector, huggingFace, onProgress, signal, ...room } = options;
    const given = {
      source: remoteInput("source", source, { headers, sha256 }),
      projector: projector === undefined ? null : remoteInput("projector", projector, { headers }),
      refresh: requireBoolean("refresh", refresh),
      ...(huggingFace !== undefined && { huggingFace: String(huggingFace) }),
      ...roomOptions(room),
    };
    const call = callOptions({ onProgress, signal });
    askToPersist();
    return this.#call("download", given, call);
  }

  /**
   * Copies a local file, or the shards of one model in any order, into the store.
   * @param {Blob | Blob[]} files
   * @param {ImportOptions} [options]
   * @returns {Promise<Manifest>}
   * @throws {HeadraceError} model_invalid, model_truncated, invalid_request, storage_full, storage_failed,
   *   cancelled
   */
  async import(files, options = {}) {
    const { name, onProgress, signal, ...room } = options;
    const input = modelInput("files", files);
    if (input.kind !== "files")
      throw invalid("files", 'the option "files" must be a File or a Blob, or a list');
    if (name !== undefined && typeof name !== "string")
      throw invalid("name", 'the option "name" must be a text');
    const given = { files: input.files, ...(name !== undefined && { name }), ...roomOptions(room) };
    const call = callOptions({ onProgress, signal });
    askToPersist();
    return this.#call("import", given, call);
  }

  /**
   * Reads a stored model and compares its hashes. A file with wrong bytes is removed, so that the next
   * download fetches it again; until then, or until it is deleted, the model stays listed.
   * @param {ModelRef} model
   * @param {CallOptions} [options]
   * @returns {Promise<{ok: boolean, damaged: string[]}>} the names of files that are damaged or missing
   */
  async verify(model, options = {}) {
    return this.#call("verify", { id: idOf(model) }, callOptions(options));
  }

  /**
   * @param {ModelRef} model
   * @param {boolean} [pinned] whether it is never evicted
   * @returns {Promise<Manifest>}
   */
  async pin(model, pinned = true) {
    return this.#call("pin", { id: idOf(model), pinned: requireBoolean("pinned", pinned) });
  }

  /**
   * Deletes a model, and its projector when no other model has it.
   * @param {ModelRef} model
   * @param {{wait?: boolean, signal?: AbortSignal}} [options] by default it waits until no endpoint uses it
   * @returns {Promise<void>}
   * @throws {HeadraceError} model_in_use when `wait` is false and somebody does; model_not_found, cancelled
   */
  async delete(model, { wait = true, signal, ...unknown } = {}) {
    refuseUnknown(unknown);
    return this.#call(
      "delete",
      { id: idOf(model), wait: requireBoolean("wait", wait) },
      callOptions({ signal }),
    );
  }

  /**
   * @param {ModelRef} model
   * @returns {Promise<{name: string, blob: Blob}[]>} its files; a Blob is read when it is used, and can be no
   *   longer once the model is deleted
   */
  async export(model) {
    return this.#call("export", { id: idOf(model) });
  }

  /**
   * For endpoints, whose workers see what is stored on disk, but not what is in this client's memory.
   * @param {string} id
   * @returns {Promise<{name: string, blob: Blob}[] | null>} the model's files, if they are in memory
   */
  async filesInMemory(id) {
    if (!this.#worker || (await this.#call("usage", {})).storage !== "memory") return null;
    return this.#call("export", { id });
  }

  /**
   * Ends the worker. Calls that have not ended reject with cancelled.
   * @returns {void}
   */
  close() {
    this.#closed = true;
    this.#end(new HeadraceError("cancelled", "the client was closed"));
  }

  /**
   * @template {StoreMethod} M
   * @param {M} method
   * @param {StoreCalls[M]["arguments"]} given
   * @param {CallOptions} [options]
   * @returns {Promise<StoreCalls[M]["result"]>}
   */
  async #call(method, given, { onProgress, signal } = {}) {
    if (this.#closed) throw new HeadraceError("engine_closed", "this client was closed");
    if (signal?.aborted) throw cancelled(signal);
    this.#worker ??= this.#start();
    const id = this.#nextId++;
    const pending = { ...deferred(), onProgress };
    this.#pending.set(id, pending);
    this.#send(/** @type {StoreCommand} */ ({ type: "call", id, method, arguments: given }));

    const abort = () => {
      this.#pending.delete(id);
      this.#send({ type: "abort", id });
      pending.reject(cancelled(/** @type {AbortSignal} */ (signal)));
    };
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await pending.promise;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** @returns {Worker} */
  #start() {
    /** @type {Worker} */
    let worker;
    try {
      worker = new Worker(new URL("./store_worker.js", import.meta.url), {
        type: "module",
        name: "headrace store",
      });
    } catch (error) {
      throw HeadraceError.from(error, "environment_unsupported", "the store's worker could not be started");
    }
    const lock = `headrace-store-${Date.now()}-${Math.random()}`;
    worker.onmessage = (/** @type {MessageEvent<StoreEvent>} */ { data }) => this.#receive(data, lock);
    worker.onerror = (event) => {
      event.preventDefault();
      this.#end(crashed(event.message || "it could not be started"));
    };
    worker.onmessageerror = () => this.#end(crashed("it sent a message that could not be read"));
    worker.postMessage(/** @type {StoreCommand} */ ({ type: "start", limitBytes: this.#limitBytes, lock }));
    return worker;
  }

  /**
   * @param {StoreEvent} event
   * @param {string} lock
   */
  #receive(event, lock) {
    if (event.type === "started") {
      this.#watch(lock);
      return;
    }
    const pending = this.#pending.get(event.id);
    switch (event.type) {
      case "progress":
        pending?.onProgress?.(event.progress);
        break;
      case "done":
        this.#pending.delete(event.id);
        pending?.resolve(event.result);
        break;
      case "failed":
        this.#pending.delete(event.id);
        pending?.reject(HeadraceError.fromWire(event.error));
        break;
    }
  }

  /**
   * A worker that the browser ends raises no event, but its lock becomes free.
   * @param {string} lock
   */
  #watch(lock) {
    this.#lockWatch = new AbortController();
    navigator.locks
      ?.request(lock, { signal: this.#lockWatch.signal }, () => this.#end(crashed("it was terminated")))
      .catch(() => {});
  }

  /** @param {StoreCommand} command */
  #send(command) {
    this.#worker?.postMessage(command);
  }

  /**
   * The next call starts another worker, unless the client was closed.
   * @param {HeadraceError} error
   */
  #end(error) {
    this.#lockWatch?.abort();
    this.#lockWatch = null;
    this.#worker?.terminate();
    this.#worker = null;
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const one of pending) one.reject(HeadraceError.fromWire(error.toWire()));
  }
}

/** @param {ModelRef} model */
function idOf(model) {
  const input = modelInput("model", model);
  if (input.kind === "stored") return input.id;
  throw invalid("model", 'the option "model" must be a stored model or its id');
}

/**
 * @param {CallOptions} options
 * @returns {CallOptions}
 */
function callOptions({ onProgress, signal, ...unknown }) {
  refuseUnknown(unknown);
  if (onProgress !== undefined && typeof onProgress !== "function")
    throw invalid("onProgress", 'the option "onProgress" must be a function');
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw invalid("signal", 'the option "signal" must be an AbortSignal');
  return { onProgress, signal };
}

/**
 * @param {RoomOptions} options
 * @returns {RoomOptions}
 */
function roomOptions({ pinned, evict, ...unknown }) {
  refuseUnknown(unknown);
  return {
    ...(pinned !== undefined && { pinned: requireBoolean("pinned", pinned) }),
    ...(evict !== undefined && { evict: requireBoolean("evict", evict) }),
  };
}

/**
 * @param {string} option
 * @param {unknown} value
 * @returns {boolean}
 */
function requireBoolean(option, value) {
  if (typeof value === "boolean") return value;
  throw invalid(option, `the option "${option}" must be true or false`);
}

/** @param {object} unknown */
function refuseUnknown(unknown) {
  const [name] = Object.keys(unknown);
  if (name !== undefined) throw invalid(name, `there is no option "${name}" here`);
}

/** @param {AbortSignal} signal */
function cancelled(signal) {
  if (signal.reason instanceof HeadraceError) return signal.reason;
  return new HeadraceError("cancelled", "the call was cancelled", { cause: signal.reason });
}

/** @param {string} reason */
function crashed(reason) {
  return new HeadraceError("worker_crashed", `the store's worker has crashed: ${reason}`, {
    detail: { reason },
  });
}
