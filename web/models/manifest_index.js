// The manifests of a store, read and changed together; and their repair when one was lost.
//
// Counterpart: manifest.js, which knows a single one. Every change happens under one short lock, shared by
// all tabs. Case D2: content that no manifest names gets a new one.

import { fileHeader } from "./file_header.js";
import { withLock } from "./locks.js";
import { makeManifest, readManifest, textOf } from "./manifest.js";
import { contentHash, contentName, isManifestName, lockNames, manifestName } from "./names.js";
import { shardOf } from "./split.js";

/** @import { FetchedFile, GgufHeader, Manifest, Storage } from "./types.js" */

/**
 * What the folder held at one moment. `damaged` are manifests that cannot be read.
 * @typedef {{manifests: Manifest[], damaged: string[], sizes: Map<string, number>}} Snapshot
 */

export class ManifestIndex {
  #storage;

  /** @param {Storage} storage */
  constructor(storage) {
    this.#storage = storage;
  }

  /**
   * @returns {Promise<Snapshot>}
   * @throws {HeadraceError} version_mismatch when any manifest is of a newer version: what it says of the
   *   files is not known, so none may be touched
   */
  async read() {
    const sizes = new Map((await this.#storage.list()).map(({ name, size }) => [name, size]));
    /** @type {Snapshot} */
    const snapshot = { manifests: [], damaged: [], sizes };
    for (const name of sizes.keys()) {
      if (!isManifestName(name)) continue;
      const text = await this.#storage.readText(name);
      if (text === null) continue;
      const manifest = await readManifest(text, idOf(name));
      if (manifest) snapshot.manifests.push(manifest);
      else snapshot.damaged.push(name);
    }
    return snapshot;
  }

  /**
   * @param {string} id
   * @returns {Promise<Manifest | null>} null when there is none, or a damaged one
   */
  async get(id) {
    const text = await this.#storage.readText(manifestName(id));
    return text === null ? null : readManifest(text, id);
  }

  /** @param {Manifest} manifest */
  async write(manifest) {
    await this.#storage.writeText(manifestName(manifest.id), JSON.stringify(manifest));
  }

  /**
   * Runs alone among all who change manifests or the content that they name.
   * @template T
   * @param {() => Promise<T>} action
   * @returns {Promise<T>}
   */
  change(action) {
    return withLock(lockNames(this.#storage).manifests, {}, action);
  }

  /**
   * @param {string} id
   * @param {(manifest: Manifest) => Manifest} alter
   * @returns {Promise<Manifest | null>} null when there is none any more
   */
  update(id, alter) {
    return this.change(async () => {
      const known = await this.get(id);
      if (!known) return null;
      const altered = alter(known);
      await this.write(altered);
      return altered;
    });
  }

  /**
   * Gives content without a manifest a new one, without sources, and removes manifests that are damaged.
   * @returns {Promise<Manifest[]>} the new ones
   */
  async repair() {
    // Looked at without the lock first: nearly always there is nothing to do.
    if (!needsRepair(await this.read())) return [];
    return this.change(async () => {
      const snapshot = await this.read();
      const made = await this.#adoptOrphans(orphans(snapshot));
      for (const manifest of made) await this.write(manifest);
      const kept = new Set(made.map(({ id }) => manifestName(id)));
      for (const name of snapshot.damaged) if (!kept.has(name)) await this.#storage.remove(name);
      return made;
    });
  }

  /**
   * @param {{sha256: string, size: number}[]} files
   * @returns {Promise<Manifest[]>} of the models that are complete
   */
  async #adoptOrphans(files) {
    /** @type {Map<string, FetchedFile[]>} */
    const sets = new Map();
    const manifests = [];
    for (const file of files) {
      const header = await readStoredHeader(this.#storage, contentName(file.sha256));
      if (!header) continue;
      const fetched = { part: file, files: [{ ...file, name: "" }], etag: null, header };
      const shard = shardOf(header);
      if (!shard) manifests.push(await makeManifest([fetched], { name: nameOf(header, file), sources: [] }));
      else mapped(sets, setOf(header)).push(fetched);
    }
    for (const shards of sets.values()) {
      const ordered = shards.sort((a, b) => indexOf(a) - indexOf(b));
      const complete =
        ordered.length === shardOf(ordered[0].header)?.count &&
        ordered.every((one, i) => indexOf(one) === i + 1);
      if (!complete) continue;
      const name = nameOf(ordered[0].header, ordered[0].part);
      manifests.push(await makeManifest(ordered, { name, sources: [] }));
    }
    return manifests;
  }
}

/** @param {Snapshot} snapshot */
function needsRepair(snapshot) {
  return snapshot.damaged.length > 0 || orphans(snapshot).length > 0;
}

/**
 * @param {Snapshot} snapshot
 * @returns {{sha256: string, size: number}[]} content that no manifest names
 */
export function orphans({ manifests, sizes }) {
  const named = new Set(manifests.flatMap(({ files }) => files.map(({ sha256 }) => sha256)));
  return [...sizes].flatMap(([name, size]) => {
    const sha256 = contentHash(name);
    return sha256 !== null && !named.has(sha256) && size > 0 ? [{ sha256, size }] : [];
  });
}

/**
 * @param {Manifest} manifest
 * @param {Map<string, number>} sizes of the files that are there
 * @returns {string[]} names of its files that are missing or of another size
 */
export function brokenFiles({ files }, sizes) {
  return files
    .map((file) => ({ ...file, name: contentName(file.sha256) }))
    .filter(({ name, size }) => sizes.get(name) !== size)
    .map(({ name }) => name);
}

/**
 * @param {Storage} storage
 * @param {string} name
 * @returns {Promise<GgufHeader | null>} null when it has none, or cannot be read now
 */
export async function readStoredHeader(storage, name) {
  try {
    const file = await storage.openRead(name);
    try {
      return fileHeader(file, name);
    } finally {
      file.close();
    }
  } catch {
    return null;
  }
}

/** @param {string} name of a manifest's file */
function idOf(name) {
  return `sha256-${name.slice("model-".length, -".json".length)}`;
}

/** @param {FetchedFile} fetched */
function indexOf({ header }) {
  return shardOf(header)?.index ?? 0;
}

/**
 * What tells shards of one model from those of another: only the first one says more.
 * @param {GgufHeader} header
 */
function setOf(header) {
  return `${shardOf(header)?.count} ${header.metadata.get("split.tensors.count")}`;
}

/**
 * @param {GgufHeader} header
 * @param {{sha256: string}} file
 */
function nameOf(header, { sha256 }) {
  return textOf(header, "general.name") ?? `model ${sha256.slice(0, 8)}`;
}

/**
 * @template K, V
 * @param {Map<K, V[]>} map
 * @param {K} key
 * @returns {V[]}
 */
function mapped(map, key) {
  const list = map.get(key) ?? [];
  map.set(key, list);
  return list;
}
