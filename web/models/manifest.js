// What is written down about a stored model: made, read field by field, and completed by what is learnt
// later.
//
// Counterparts: types.js tells the fields, headrace/models/manifest.py reads and writes the same. Not a
// reader of folders: manifest_index.js is.

import { HeadraceError } from "../errors.js";
import { isModelId } from "./names.js";
import { sha256Hex } from "./sha256.js";

/** @import { FetchedFile, GgufHeader, Manifest, Origin } from "./types.js" */

export const MANIFEST_VERSION = 1;

const HASH = /^[0-9a-f]{64}$/;

/**
 * @param {string[]} digests of the published files, in order
 * @returns {Promise<string>}
 */
export async function modelId(digests) {
  const [first = "", ...others] = digests;
  return `sha256-${others.length === 0 ? first : await sha256Hex(digests.join("\n"))}`;
}

/**
 * @param {FetchedFile[]} fetched the published files, in order
 * @param {{name: string, sources: Origin[], pinned?: boolean}} about
 * @returns {Promise<Manifest>}
 */
export async function makeManifest(fetched, { name, sources, pinned = false }) {
  const parts = fetched.map(({ part }) => ({ sha256: part.sha256, size: part.size }));
  const files = fetched.flatMap((one) => one.files.map(({ sha256, size }) => ({ sha256, size })));
  const [header] = fetched.map((one) => one.header);
  const now = new Date().toISOString();
  return {
    version: MANIFEST_VERSION,
    id: await modelId(parts.map(({ sha256 }) => sha256)),
    name,
    size: files.reduce((sum, { size }) => sum + size, 0),
    sources,
    parts,
    files,
    projector: null,
    license: textOf(header, "general.license"),
    architecture: textOf(header, "general.architecture"),
    addedAt: now,
    usedAt: now,
    pinned,
  };
}

/**
 * The same model came again, perhaps from elsewhere: what was known stays.
 * @param {Manifest | null} known
 * @param {Manifest} fresh of the same id
 * @returns {Manifest}
 */
export function mergeManifests(known, fresh) {
  if (!known) return fresh;
  const keys = new Set(fresh.sources.map(({ key }) => key));
  return {
    ...fresh,
    name: known.sources.length > 0 || fresh.sources.length === 0 ? known.name : fresh.name,
    sources: [...known.sources.filter(({ key }) => !keys.has(key)), ...fresh.sources],
    projector: known.projector,
    addedAt: known.addedAt,
    pinned: known.pinned || fresh.pinned,
  };
}

/**
 * @param {GgufHeader | undefined} header
 * @param {string} key
 * @returns {string | null}
 */
export function textOf(header, key) {
  const value = header?.metadata.get(key);
  return typeof value === "string" && value !== "" ? value : null;
}

/**
 * @param {string} text
 * @param {string} id that the file's name promises
 * @returns {Promise<Manifest | null>} null when it is damaged
 * @throws {HeadraceError} version_mismatch, when a newer version of Headrace has written it
 */
export async function readManifest(text, id) {
  /** @type {any} */
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value !== "object" || value === null || !Number.isInteger(value.version)) return null;
  if (value.version > MANIFEST_VERSION) throw newerVersion(value.version);
  if (value.version !== MANIFEST_VERSION || value.id !== id || !isManifest(value)) return null;
  return (await modelId(value.parts.map(({ sha256 }) => sha256))) === id ? value : null;
}

/** @param {number} found */
export function newerVersion(found) {
  return new HeadraceError(
    "version_mismatch",
    `the model store was written by a newer version of Headrace (format ${found}, known is ` +
      `${MANIFEST_VERSION}): reload the page`,
    { detail: { found, expected: MANIFEST_VERSION } },
  );
}

/** @param {any} value @returns {value is Manifest} */
function isManifest(value) {
  return (
    isModelId(value.id) &&
    isText(value.name) &&
    isHashedList(value.parts) &&
    isHashedList(value.files) &&
    value.size === value.files.reduce((/** @type {number} */ sum, /** @type {any} */ f) => sum + f.size, 0) &&
    Array.isArray(value.sources) &&
    value.sources.every(isOrigin) &&
    (value.projector === null || isModelId(value.projector)) &&
    (value.license === null || isText(value.license)) &&
    (value.architecture === null || isText(value.architecture)) &&
    isTime(value.addedAt) &&
    isTime(value.usedAt) &&
    typeof value.pinned === "boolean"
  );
}

/** @param {any} list */
function isHashedList(list) {
  return Array.isArray(list) && list.length > 0 && list.every(isHashed);
}

/** @param {any} value */
function isHashed(value) {
  return (
    typeof value === "object" &&
    value !== null &&
    isText(value.sha256) &&
    HASH.test(value.sha256) &&
    Number.isSafeInteger(value.size) &&
    value.size > 0
  );
}

/** @param {any} value */
function isOrigin(value) {
  return (
    typeof value === "object" &&
    value !== null &&
    isText(value.key) &&
    HASH.test(value.key) &&
    isText(value.display) &&
    (value.etag === null || isText(value.etag))
  );
}

/** @param {unknown} value */
function isText(value) {
  return typeof value === "string";
}

/** @param {unknown} value */
function isTime(value) {
  return typeof value === "string" && !Number.isNaN(Date.parse(value));
}
