// The last steps of a download or an import: from files under `partial-` names to a model that is listed.
//
// Counterpart: model_store.js, which calls it. Each file that has come whole leaves a record, so that a crash
// at any later point costs neither bytes nor hashing: record, content renamed, manifest, record and journal
// removed.

import { discardPartial } from "./download.js";
import { makeManifest, mergeManifests } from "./manifest.js";
import { readStoredHeader } from "./manifest_index.js";
import { contentName, manifestName, recordName } from "./names.js";

/** @import { ManifestIndex } from "./manifest_index.js" */
/** @import { FetchedFile, Manifest, Origin, Storage } from "./types.js" */

/** What stands in a record. @typedef {Omit<FetchedFile, "header"> & {version: 1}} CompletionRecord */

/**
 * @param {Storage} storage
 * @param {string} key
 * @param {FetchedFile} fetched
 */
export async function writeRecord(storage, key, { part, files, etag }) {
  /** @type {CompletionRecord} */
  const record = { version: 1, part, files, etag };
  await storage.writeText(recordName(key), JSON.stringify(record));
}

/**
 * @param {Storage} storage
 * @param {string} key
 * @returns {Promise<FetchedFile | null>} a file that came whole before, if its bytes are still there
 */
export async function readRecord(storage, key) {
  const text = await storage.readText(recordName(key));
  if (text === null) return null;
  const record = parseRecord(text);
  if (!record) return null;
  const sizes = new Map((await storage.list()).map(({ name, size }) => [name, size]));
  /** @type {FetchedFile["files"]} */
  const files = [];
  for (const file of record.files) {
    const name = [file.name, contentName(file.sha256)].find((one) => sizes.get(one) === file.size);
    if (name === undefined) return null;
    files.push({ ...file, name });
  }
  const header = await readStoredHeader(storage, files[0].name);
  return header && { part: record.part, files, etag: record.etag, header };
}

/**
 * @param {string} text
 * @returns {CompletionRecord | null}
 */
function parseRecord(text) {
  try {
    const record = JSON.parse(text);
    const files = [record.part, ...record.files];
    const sound = files.every(
      ({ sha256, size }) => /^[0-9a-f]{64}$/.test(sha256) && Number.isSafeInteger(size),
    );
    return sound && files.length > 1 && record.version === 1 ? record : null;
  } catch {
    return null;
  }
}

/**
 * Files that were there already have their content names.
 * @param {Storage} storage
 * @param {ManifestIndex} index
 * @param {FetchedFile[]} fetched the published files in order
 * @param {{name: string, sources: Origin[], pinned?: boolean, keys: string[]}} about `keys` of the downloads
 * @returns {Promise<Manifest>}
 */
export async function complete(storage, index, fetched, { keys, ...about }) {
  const fresh = await makeManifest(fetched, about);
  return index.change(async () => {
    const { manifests, sizes } = await index.read();
    for (const { name, sha256, size } of fetched.flatMap(({ files }) => files)) {
      const content = contentName(sha256);
      if (name === content) continue;
      if (sizes.get(content) === size) await storage.remove(name);
      else await storage.rename(name, content);
      sizes.set(content, size);
    }
    const manifest = mergeManifests(manifests.find(({ id }) => id === fresh.id) ?? null, fresh);
    await index.write(manifest);
    await releaseSources(index, manifests, manifest);
    for (const { id } of manifests.filter((one) => isStandIn(one, manifest)))
      await storage.remove(manifestName(id));
    for (const key of keys) await discard(storage, key);
    return manifest;
  });
}

/**
 * A source gives one model: what it gave before it was changed is kept, but no longer found under it.
 * @param {ManifestIndex} index
 * @param {Manifest[]} manifests
 * @param {Manifest} now
 */
async function releaseSources(index, manifests, now) {
  const keys = new Set(now.sources.map(({ key }) => key));
  for (const manifest of manifests) {
    const sources = manifest.sources.filter(({ key }) => !keys.has(key));
    if (manifest.id !== now.id && sources.length < manifest.sources.length)
      await index.write({ ...manifest, sources });
  }
}

/**
 * A repair knows only the shards of a file that was split here, and gives them an id of their own.
 * @param {Manifest} other
 * @param {Manifest} now
 */
function isStandIn(other, now) {
  const content = (/** @type {Manifest} */ { files }) => files.map(({ sha256 }) => sha256).join();
  return other.id !== now.id && other.sources.length === 0 && content(other) === content(now);
}

/**
 * The journal goes last: without it, what else is left would be nobody's.
 * @param {Storage} storage
 * @param {string} key
 */
export async function discard(storage, key) {
  await storage.remove(recordName(key));
  await discardPartial(storage, key);
}
