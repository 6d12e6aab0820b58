// How the files and the locks of a model store are called.
//
// Counterparts: manifest.js and model_store.js use these names, headrace/models/ has the same for files. Not
// a place for file contents.

/** @import { Storage } from "./types.js" */

const CONTENT = /^([0-9a-f]{64})\.gguf$/;
const MANIFEST = /^model-[0-9a-f]{64}\.json$/;
const PARTIAL = /^partial-([0-9a-f]{64})[-.]/;

/** @param {string} sha256 */
export const contentName = (sha256) => `${sha256}.gguf`;

/** @param {string} id */
export const manifestName = (id) => `model-${id.slice("sha256-".length)}.json`;

/** @param {string} key */
export const journalName = (key) => `partial-${key}.json`;

/**
 * The bytes of an unfinished download.
 * @param {string} key
 * @param {number | "head"} part which stored file of it, from 1; "head": the published header of one that is split
 */
export const partialName = (key, part) => `partial-${key}-${part}.gguf`;

/**
 * The record of a file that has come whole and waits for its model to be complete, see completion.js.
 * @param {string} key
 */
export const recordName = (key) => `partial-${key}-done.json`;

/**
 * @param {string} name
 * @returns {string | null} the sha256 of a content file
 */
export const contentHash = (name) => CONTENT.exec(name)?.[1] ?? null;

/** @param {string} name */
export const isManifestName = (name) => MANIFEST.test(name);

/**
 * @param {string} name
 * @returns {string | null} the key of a file of an unfinished download
 */
export const partialKey = (name) => PARTIAL.exec(name)?.[1] ?? null;

/** Nobody else's. Not crypto.randomUUID, which an insecure origin (case D7) lacks. */
export const randomName = () => [...crypto.getRandomValues(new Uint32Array(4))].join("-");

/** @param {unknown} id */
export const isModelId = (id) => typeof id === "string" && /^sha256-[0-9a-f]{64}$/.test(id);

/**
 * What a person may call a file, as a file name.
 * @param {string} name
 * @returns {string} without folder, extension and shard number
 */
export function baseName(name) {
  const last = name.split(/[\\/]/).pop() ?? "";
  const stem = last.replace(/\.gguf$/i, "").replace(/-\d{5}-of-\d{5}$/, "");
  return stem.replace(/[^\w.() -]+/g, "_").replace(/^\.+/, "") || "model";
}

/**
 * @param {string} name what people call the model
 * @param {number} index of the file, from 0
 * @param {number} count of files
 * @returns {string} a name as gguf-split gives them
 */
export function shardName(name, index, count) {
  const digits = (/** @type {number} */ value) => String(value).padStart(5, "0");
  return baseName(name) + (count === 1 ? "" : `-${digits(index + 1)}-of-${digits(count)}`) + ".gguf";
}

/** @typedef {{fetch(key: string): string, use(id: string): string, manifests: string}} LockNames */

/** @type {WeakMap<Storage, LockNames>} */
const scopes = new WeakMap();

/**
 * A store in OPFS is one for the whole origin, and so are its locks; one in memory is nobody else's, so that
 * others never wait for it.
 * @param {Storage} storage
 * @returns {LockNames}
 */
export function lockNames(storage) {
  let names = scopes.get(storage);
  if (!names) {
    const prefix = storage.kind === "opfs" ? "headrace" : `headrace-memory-${randomName()}`;
    names = {
      fetch: (key) => `${prefix}-fetch-${key}`,
      use: (id) => `${prefix}-use-${id}`,
      manifests: `${prefix}-manifests`,
    };
    scopes.set(storage, names);
  }
  return names;
}
