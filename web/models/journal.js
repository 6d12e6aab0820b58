// What has come of a published file, as it is written down: the part of a download that survives a crash.
//
// Counterparts: types.js tells the fields, partial.js writes it after the bytes; headrace/models/journal.py
// reads and writes the same.

import { journalName } from "./names.js";

/** @import { Range } from "./ranges.js" */
/** @import { Journal, RemoteFile, Storage } from "./types.js" */

const VERSION = 1;

/**
 * @param {Pick<RemoteFile, "key" | "display" | "name">} file
 * @returns {Journal} of a file of which nothing has come
 */
export function newJournal({ key, display, name }) {
  const startedAt = new Date().toISOString();
  return {
    version: VERSION,
    key,
    display,
    name,
    size: null,
    etag: null,
    lastModified: null,
    ranges: [],
    startedAt,
  };
}

/**
 * @param {Storage} storage
 * @param {string} key
 * @returns {Promise<Journal | null>} null when there is none that can be believed: the download starts over
 */
export async function readJournal(storage, key) {
  const text = await storage.readText(journalName(key));
  try {
    const journal = JSON.parse(text ?? "null");
    return isJournal(journal) && journal.key === key ? journal : null;
  } catch {
    return null;
  }
}

/**
 * @param {any} value
 * @returns {value is Journal}
 */
function isJournal(value) {
  if (typeof value !== "object" || value === null || value.version !== VERSION) return false;
  const texts = [value.key, value.display, value.name, value.startedAt];
  const maybe = [value.etag, value.lastModified];
  const { size, ranges } = value;
  return (
    texts.every((text) => typeof text === "string") &&
    maybe.every((text) => text === null || typeof text === "string") &&
    (size === null || Number.isSafeInteger(size)) &&
    Array.isArray(ranges) &&
    ranges.every((range) => isRange(range, size ?? Number.MAX_SAFE_INTEGER))
  );
}

/**
 * @param {any} range
 * @param {number} size
 * @returns {range is Range}
 */
function isRange(range, size) {
  if (!Array.isArray(range) || range.length !== 2 || !range.every(Number.isSafeInteger)) return false;
  return range[0] >= 0 && range[0] < range[1] && range[1] <= size;
}
