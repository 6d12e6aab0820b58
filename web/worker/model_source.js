// Turns the model inputs of an open command into files that can be mounted.
//
// Counterparts: models/model_store.js keeps what has an address, engine_port.js mounts what is opened here.
// Not a reader of models: of a local file only the header is looked at.

import { HeadraceError } from "../errors.js";
import { openBlob } from "../models/blob_file.js";
import { blobHeader, requireOneFile } from "../models/blob_header.js";
import { orderOf } from "../models/fetch_model.js";
import { ModelStore } from "../models/model_store.js";
import { shardName } from "../models/names.js";
import { resolveRemote } from "../models/sources.js";
import { openStorage } from "../models/storage.js";

/** @import { ModelInput, RemoteInput } from "../models/store_protocol.js" */
/** @import { ReadableFile, StoreProgress } from "../models/types.js" */
/** @import { ModelFiles, ModelOrigin, StoreOptions } from "./protocol.js" */

/**
 * A model ready to be mounted. `files` are in the order of loading. A stored one stays locked until this
 * worker ends: a model in use is not deleted, though its files may be closed.
 * @typedef {{files: {name: string, file: ReadableFile}[], source: ModelOrigin}} OpenedModel
 */

/** @typedef {(file: string, progress: StoreProgress) => void} Report */

/** @type {ModelOrigin} */
const IN_PLACE = { kind: "file", modelId: null };

/** Opens the models of one endpoint. */
export class ModelOpener {
  #options;
  #report;
  /** @type {Partial<Record<"auto" | "memory", Promise<ModelStore>>>} */ #stores = {};
  /** Sentences for people: why models are not kept where one would think. @type {string[]} */ reasons = [];

  /**
   * @param {StoreOptions} options
   * @param {Report} report called at most ten times a second for a file, as Progress names it
   */
  constructor(options, report) {
    this.#options = options;
    this.#report = report;
  }

  /**
   * One model after the other.
   * @param {ModelFiles<ModelInput>} inputs
   * @returns {Promise<ModelFiles<OpenedModel>>}
   * @throws {HeadraceError} as ModelStore does
   */
  async open({ model, draftModel, adapters = [] }) {
    /** @type {ModelFiles<OpenedModel>} */
    const opened = { model: await this.#open(model, "model") };
    if (draftModel) opened.draftModel = await this.#open(draftModel, "draftModel");
    opened.adapters = [];
    for (const { model: input, ...adapter } of adapters) {
      opened.adapters.push({ ...adapter, model: await this.#open(input, `adapters.${adapter.name}`) });
    }
    return opened;
  }

  /**
   * @param {ModelInput} input
   * @param {string} file
   * @returns {Promise<OpenedModel>}
   */
  async #open(input, file) {
    switch (input.kind) {
      case "remote":
        return isLocalAddress(input)
          ? this.#openFiles(await fetchLocal(input), file)
          : this.#openRemote(input, file);
      case "stored":
        return this.#openStored(input.id);
      case "files":
        return this.#openFiles(input.files, file, input.id);
    }
  }

  /**
   * @param {RemoteInput} input
   * @param {string} file
   */
  async #openRemote({ addresses, headers, sha256 }, file) {
    const { huggingFace } = this.#options;
    const remote = await resolveRemote(addresses, { huggingFace, headers, sha256: sha256 ?? undefined });
    const store = await this.#store(this.#options.kind === "memory" ? "memory" : "auto");
    return mountable(store, await store.use(remote, this.#bringing(file)));
  }

  /** @param {string} id */
  async #openStored(id) {
    const store = await this.#store("auto");
    return mountable(store, await store.open(id));
  }

  /**
   * @param {{blob: Blob, name: string}[]} files
   * @param {string} file
   * @param {string} [id] of the model that the page's store has in memory
   * @returns {Promise<OpenedModel>}
   */
  async #openFiles(files, file, id) {
    if (this.#options.kind === "keep" && id === undefined) {
      const store = await this.#store("auto");
      // In memory a copy would be of no use to anybody.
      if (store.kind === "opfs") {
        const imported = await store.importFiles(files, this.#bringing(file));
        return mountable(store, await store.open(imported.id));
      }
    }
    const headers = await Promise.all(files.map(({ blob, name }) => blobHeader(blob, name)));
    for (const [place, { blob, name }] of files.entries()) await requireOneFile(headers[place], blob, name);
    const order = orderOf(files.map(({ name }, place) => ({ name, header: headers[place] })));
    const opened = order.map((place) => ({ name: files[place].name, file: openBlob(files[place].blob) }));
    return { files: opened, source: id === undefined ? IN_PLACE : { kind: "memory", modelId: id } };
  }

  /** @param {string} file */
  #bringing(file) {
    const onProgress = (/** @type {StoreProgress} */ progress) => this.#report(file, progress);
    return { onProgress, evict: this.#options.evict };
  }

  /**
   * @param {"auto" | "memory"} kind
   * @returns {Promise<ModelStore>}
   */
  #store(kind) {
    this.#stores[kind] ??= openStorage(kind).then(({ storage, reason }) => {
      if (reason !== null) this.reasons.push(reason);
      return new ModelStore(storage, { limitBytes: this.#options.limitBytes });
    });
    return this.#stores[kind];
  }
}

/**
 * @param {ModelStore} store
 * @param {import("../models/model_store.js").OpenModel} open
 * @returns {OpenedModel}
 */
function mountable(store, { manifest, files }) {
  const named = files.map((one, index) => ({
    name: shardName(manifest.name, index, files.length),
    file: one,
  }));
  return { files: named, source: { kind: store.kind, modelId: manifest.id } };
}

/**
 * A Blob that has an address is in this browser already, and its address will mean nothing tomorrow.
 * @param {RemoteInput} input
 */
function isLocalAddress({ addresses }) {
  return addresses.every((address) => /^(blob|data):/i.test(address));
}

/**
 * @param {RemoteInput} input
 * @returns {Promise<{blob: Blob, name: string}[]>}
 */
function fetchLocal({ addresses }) {
  return Promise.all(
    addresses.map(async (address) => {
      const name = `the model behind the ${new URL(address).protocol} URL`;
      try {
        return { blob: await (await fetch(address)).blob(), name };
      } catch (error) {
        throw HeadraceError.from(error, "download_failed", `${name} could not be reached`);
      }
    }),
  );
}
