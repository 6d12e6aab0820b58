// The model store: models by id, on top of a flat folder of files. Runs in workers; all tabs share what it
// keeps.
//
// Counterparts: headrace/models/store.py is the Python twin; fetch_model.js brings models in,
// manifest_index.js knows them, quota.js decides about room. Not a cache: nothing is deleted without consent
// or a limit.

import { HeadraceError } from "../errors.js";
import { fetchModel, importKey, importModel } from "./fetch_model.js";
import { hashOf } from "./hashing.js";
import { holdLock, lockIsHeld, withLock } from "./locks.js";
import { ManifestIndex, brokenFiles } from "./manifest_index.js";
import { contentName, isModelId, lockNames, manifestName, partialKey, shardName } from "./names.js";
import { ProgressMeter } from "./progress.js";
import { Room } from "./room.js";
import { ignoreTaken, isTaken, whileFetching } from "./sharing.js";

/** @import { FetchContext, TransferSettings } from "./fetch_model.js" */
/** @import { Figures } from "./quota.js" */
/** @import { Manifest, ReadableFile, RemoteModel, Storage, StoredModel, StoreProgress } from "./types.js" */

/**
 * `evict` allows, or forbids, that models make room; by default a store with a limit may, another may not.
 * @typedef {{onProgress?: (progress: StoreProgress) => void, signal?: AbortSignal, pinned?: boolean,
 *   evict?: boolean}} BringOptions
 */

/** A model in use, which nobody can delete until it is released. `files` are in the order of loading.
 * @typedef {{manifest: Manifest, files: ReadableFile[], release: () => void}} OpenModel
 */

/** A model that vanishes between finding and opening it is fetched again, but not for ever. */
const TRIES = 3;

export class ModelStore {
  #storage;
  #index;
  #locks;
  #room;
  #mayEvict;
  #settings;

  /**
   * @param {Storage} storage
   * @param {{limitBytes?: number | null, settings?: TransferSettings}} [options] `limitBytes` of all models
   *   together; beyond it the least recently used make room
   */
  constructor(storage, { limitBytes = null, settings = {} } = {}) {
    this.#storage = storage;
    this.#index = new ManifestIndex(storage);
    this.#locks = lockNames(storage);
    this.#mayEvict = limitBytes !== null;
    this.#room = new Room(storage, limitBytes, {
      list: () => this.list(),
      remove: (id) => this.delete(id, { wait: false }),
    });
    this.#settings = settings;
  }

  get kind() {
    return this.#storage.kind;
  }

  /**
   * The model of an address: as it is stored, without asking the network, or downloaded.
   * @param {RemoteModel} remote
   * @param {BringOptions & {refresh?: boolean}} [options] `refresh` asks the server whether there is a newer
   *   one
   * @returns {Promise<Manifest>}
   */
  async obtain(remote, options = {}) {
    const { onProgress = () => {}, signal, pinned, evict, refresh = false } = options;
    const stored = refresh ? null : await this.#storedAs(remote);
    if (stored) {
      await this.#room.removeLeft(stored.left);
      return this.#pinned(stored.manifest, pinned);
    }

    const keys = remote.files.map(({ key }) => key);
    return whileFetching(this.#storage, keys, { signal, onProgress }, async (report) => {
      // Whoever has waited finds here what another tab has brought.
      const known = (await this.#storedAs(remote))?.manifest ?? null;
      if (known && !refresh) return this.#pinned(known, pinned);
      const context = this.#context({ report, signal, evict });
      return this.#pinned(await fetchModel(context, remote, { pinned, known }), pinned);
    });
  }

  /**
   * @param {{blob: Blob, name: string}[]} blobs one model: one file, or its shards in any order
   * @param {BringOptions & {name?: string}} [options]
   * @returns {Promise<Manifest>}
   */
  async importFiles(blobs, { onProgress = () => {}, signal, pinned, evict, name } = {}) {
    const files = await Promise.all(
      blobs.map(async (one) => ({ ...one, key: await importKey(one.blob, one.name) })),
    );
    const keys = files.map(({ key }) => key);
    return whileFetching(this.#storage, keys, { signal, onProgress }, async (report) => {
      const manifest = await importModel(this.#context({ report, signal, evict }), files, { name, pinned });
      return this.#pinned(manifest, pinned);
    });
  }

  /**
   * @param {string} idOrKey a model's id, or the key of a source
   * @returns {Promise<Manifest | null>}
   */
  async find(idOrKey) {
    const { manifests } = await this.#index.read();
    const isIt = (/** @type {Manifest} */ { id, sources }) =>
      id === idOrKey || sources.some(({ key }) => key === idOrKey);
    return manifests.find(isIt) ?? null;
  }

  /**
   * Everything that is stored, repaired if need be (case D2).
   * @returns {Promise<StoredModel[]>} the latest first
   */
  async list() {
    await this.repair();
    const { manifests } = await this.#index.read();
    const models = await Promise.all(
      manifests.map(async (manifest) => ({
        ...manifest,
        inUse: await lockIsHeld(this.#locks.use(manifest.id)),
      })),
    );
    return models.sort((a, b) => Date.parse(b.addedAt) - Date.parse(a.addedAt));
  }

  /** Gives content whose manifest was lost a new one. @returns {Promise<Manifest[]>} the new ones */
  repair() {
    return this.#index.repair();
  }

  /**
   * @param {string} id
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<OpenModel>}
   * @throws {HeadraceError} model_not_found when there is no such model, or not all of it
   */
  async open(id, { signal } = {}) {
    const releaseLock = await holdLock(this.#locks.use(id), { shared: true, signal });
    /** @type {ReadableFile[]} */
    const files = [];
    const release = () => {
      for (const file of files) file.close();
      releaseLock();
    };
    try {
      const { manifests, sizes } = await this.#index.read();
      const manifest = manifests.find((one) => one.id === id);
      if (!manifest) throw unknownModel(id);
      const damaged = brokenFiles(manifest, sizes);
      if (damaged.length > 0) throw damagedModel(manifest, damaged);
      for (const { sha256 } of manifest.files) files.push(await this.#storage.openRead(contentName(sha256)));
      const used = await this.#index.update(id, (one) => ({ ...one, usedAt: new Date().toISOString() }));
      return { manifest: used ?? manifest, files, release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /**
   * `obtain` and `open`, also when the model is deleted in between.
   * @param {RemoteModel} remote
   * @param {BringOptions} [options]
   * @returns {Promise<OpenModel>}
   */
  async use(remote, options = {}) {
    for (let tries = 1; ; tries++) {
      const { id } = await this.obtain(remote, options);
      try {
        return await this.open(id, options);
      } catch (error) {
        const gone = error instanceof HeadraceError && error.code === "model_not_found";
        if (!gone || tries === TRIES) throw error;
      }
    }
  }

  /**
   * Hashes what is stored anew. A file with other bytes than its name says is removed, unless it is in use:
   * nobody can want it.
   * @param {string} id
   * @param {{onProgress?: (progress: StoreProgress) => void, signal?: AbortSignal}} [options]
   * @returns {Promise<{ok: boolean, damaged: string[]}>} names of files that are missing or damaged
   */
  async verify(id, { onProgress = () => {}, signal } = {}) {
    const damaged = await withLock(this.#locks.use(id), { shared: true, signal }, async () => {
      const manifest = await this.#get(id);
      const broken = brokenFiles(manifest, (await this.#index.read()).sizes);
      const meter = new ProgressMeter(
        "verify",
        manifest.files.map(({ size }) => size),
        onProgress,
      );
      try {
        for (const [place, { sha256, size }] of manifest.files.entries()) {
          const name = contentName(sha256);
          if (broken.includes(name)) continue;
          const onBytes = (/** @type {number} */ loaded) => meter.update(place, loaded, size);
          const file = await this.#storage.openRead(name);
          const found = await hashOf(file, signal, onBytes).finally(() => file.close());
          if (found !== sha256) broken.push(name);
        }
      } finally {
        meter.stop();
      }
      return broken;
    });
    for (const name of damaged) await this.#storage.remove(name).catch(ignoreTaken);
    return { ok: damaged.length === 0, damaged };
  }

  /**
   * @param {string} id
   * @param {boolean} [pinned] whether it is never evicted
   * @returns {Promise<Manifest>}
   */
  async pin(id, pinned = true) {
    const changed = await this.#index.update(id, (manifest) => ({ ...manifest, pinned }));
    if (!changed) throw unknownModel(id);
    return changed;
  }

  /**
   * Says which stored model is the multimodal projector of another.
   * @param {string} id
   * @param {string} projector
   * @returns {Promise<Manifest>}
   */
  async link(id, projector) {
    const changed = await this.#index.update(id, (manifest) => ({ ...manifest, projector }));
    if (!changed) throw unknownModel(id);
    return changed;
  }

  /**
   * Deletes a model, and its projector when no other model has it.
   * @param {string} id
   * @param {{wait?: boolean, signal?: AbortSignal}} [options] by default it waits until nobody uses the model
   * @returns {Promise<void>}
   * @throws {HeadraceError} model_not_found; model_in_use, when it is and `wait` is false; cancelled
   */
  async delete(id, { wait = true, signal } = {}) {
    const { name, projector } = await this.#get(id);
    const deletion = withLock(this.#locks.use(id), { wait, signal }, () => this.#remove(id));
    await deletion.catch((error) => {
      throw isTaken(error) ? inUse(id, name) : error;
    });
    if (projector === null) return;
    const { manifests } = await this.#index.read();
    const left = manifests.find((one) => one.id === projector);
    const linked = manifests.some((one) => one.projector === projector);
    if (left && !left.pinned && !linked) await this.delete(projector, { wait: false }).catch(ignoreTaken);
  }

  /**
   * @param {string} id
   * @returns {Promise<{name: string, blob: Blob}[]>} the files, as the folder of a program would have them;
   *   nothing is read yet
   */
  async export(id) {
    const { name, files } = await this.#get(id);
    return Promise.all(
      files.map(async ({ sha256 }, place) => ({
        name: shardName(name, place, files.length),
        blob: await this.#storage.blob(contentName(sha256)),
      })),
    );
  }

  /** @returns {Promise<Figures & {storage: "opfs" | "memory"}>} */
  async usage() {
    return { ...(await this.#room.figures()), storage: this.#storage.kind };
  }

  /**
   * @param {string} id
   * @returns {Promise<Manifest>}
   */
  async #get(id) {
    const manifest = isModelId(id) ? await this.#index.get(id) : null;
    if (!manifest) throw unknownModel(id);
    return manifest;
  }

  /**
   * What is stored whole of an address, and has the hashes that the caller wants.
   * @param {RemoteModel} remote
   * @returns {Promise<{manifest: Manifest, left: Set<string>} | null>} `left` are keys of its files of which
   *   a crash has left something after the download was complete
   */
  async #storedAs({ files }) {
    const { manifests, sizes } = await this.#index.read();
    const keys = new Set(files.map(({ key }) => key));
    const wanted = files.flatMap(({ sha256 }) => sha256 ?? []);
    const manifest = manifests.find(({ parts, sources }) => {
      const digests = parts.map(({ sha256 }) => sha256);
      return (
        parts.length === files.length &&
        wanted.every((sha256) => digests.includes(sha256)) &&
        sources.some(({ key }) => keys.has(key))
      );
    });
    if (!manifest || brokenFiles(manifest, sizes).length > 0) return null;
    const left = [...sizes.keys()].flatMap((name) => partialKey(name) ?? []).filter((key) => keys.has(key));
    return { manifest, left: new Set(left) };
  }

  /**
   * @param {Manifest} manifest
   * @param {boolean | undefined} pinned undefined leaves it as it is
   */
  async #pinned(manifest, pinned) {
    return pinned === undefined || pinned === manifest.pinned ? manifest : this.pin(manifest.id, pinned);
  }

  /**
   * @param {{report: (progress: StoreProgress) => void, signal?: AbortSignal, evict?: boolean}} call
   * @returns {FetchContext}
   */
  #context({ report, signal, evict = this.#mayEvict }) {
    return {
      storage: this.#storage,
      index: this.#index,
      settings: this.#settings,
      makeRoom: (name, needed, keep) => this.#room.make(name, needed, { mayEvict: evict, keep }),
      evictOne: async (keep) => evict && this.#room.evictOne(keep),
      full: (name, needed) => this.#room.full(name, needed),
      report,
      signal,
    };
  }

  /**
   * Content goes first: should this stop in between, the model is listed still and can be deleted again.
   * @param {string} id
   */
  #remove(id) {
    return this.#index.change(async () => {
      const { manifests } = await this.#index.read();
      const gone = manifests.find((one) => one.id === id);
      if (!gone) return;
      const others = manifests.filter((one) => one !== gone);
      const kept = new Set(others.flatMap(({ files }) => files.map(({ sha256 }) => sha256)));
      for (const { sha256 } of gone.files) {
        if (!kept.has(sha256)) await this.#storage.remove(contentName(sha256));
      }
      await this.#storage.remove(manifestName(id));
    });
  }
}

/** @param {string} id */
function unknownModel(id) {
  return new HeadraceError("model_not_found", `there is no stored model ${id}`, { detail: { id } });
}

/**
 * @param {Manifest} manifest
 * @param {string[]} damaged
 */
function damagedModel({ id, name }, damaged) {
  const list = damaged.join(", ");
  return new HeadraceError(
    "model_not_found",
    `the stored model ${name} is damaged: ${list}; download it again`,
    {
      detail: { id, damaged },
    },
  );
}

/**
 * @param {string} id
 * @param {string} name
 */
function inUse(id, name) {
  return new HeadraceError("model_in_use", `the model ${name} is in use, here or in another tab`, {
    detail: { id },
  });
}
