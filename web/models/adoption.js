// Bytes that are here already, under another address or without a manifest, are not downloaded again.
//
// Counterpart: model_store.js asks before each download; headrace/models/adoption.py is the Python twin.
// Content is known by its hash; where no hash is promised, sixteen random ranges and the beginning decide.

import { HeadraceError } from "../errors.js";
import { parseHeader } from "./gguf_header.js";
import { hashOf } from "./hashing.js";
import { openJoined } from "./joined_file.js";
import { readStoredHeader } from "./manifest_index.js";
import { contentHash, contentName } from "./names.js";

/** @import { FetchedFile, Manifest, ReadableFile, RemoteFile, Storage } from "./types.js" */

const RANGES = 16;
const RANGE_BYTES = 16 * 1024;

/**
 * What is known of the published file. `head` are its first bytes.
 * @typedef {{size: number | null, etag: string | null, ranges: boolean, sha256: string | null,
 *   head: Uint8Array}} Published
 */

/**
 * @typedef {object} AdoptionOptions
 * @property {Map<string, number>} sizes of the stored files
 * @property {Manifest[]} manifests
 * @property {AbortSignal} [signal]
 * @property {typeof globalThis.fetch} [fetch]
 * @property {() => number} [random] from 0 to 1
 */

/**
 * @param {Storage} storage
 * @param {RemoteFile} file
 * @param {Published} published
 * @param {AdoptionOptions} options
 * @returns {Promise<FetchedFile | null>} what is here, under content names
 */
export async function adopt(storage, file, published, options) {
  return (
    (await adoptWhole(storage, file, published, options)) ?? adoptSplit(storage, file, published, options)
  );
}

/**
 * @param {Storage} storage
 * @param {RemoteFile} file
 * @param {Published} published
 * @param {AdoptionOptions} options
 * @returns {Promise<FetchedFile | null>}
 */
async function adoptWhole(storage, file, published, options) {
  const promised = file.sha256 ?? published.sha256;
  for (const { sha256, size } of candidates(options.sizes, published.size, promised)) {
    const name = contentName(sha256);
    if (promised === null) {
      const stored = await storage.openRead(name).catch(() => null);
      const same =
        stored !== null && (await isSame(stored, file, published, options).finally(() => stored.close()));
      if (!same) continue;
    }
    const header = await readStoredHeader(storage, name);
    if (!header) continue;
    return { part: { sha256, size }, files: [{ name, sha256, size }], etag: published.etag, header };
  }
  return null;
}

/**
 * A large file that was split here. Where its manifest was lost, only its shards are known: then it is
 * hashed.
 * @param {Storage} storage
 * @param {RemoteFile} file
 * @param {Published} published
 * @param {AdoptionOptions} options
 * @returns {Promise<FetchedFile | null>}
 */
async function adoptSplit(storage, file, published, options) {
  const header = published.size === null ? null : parseHeader(published.head, file.name);
  if (!header) return null;
  const promised = file.sha256 ?? published.sha256;
  for (const { parts, files } of options.manifests) {
    const known = parts.length === 1 ? parts[0] : null;
    if (files.length === 1 || (known && promised !== null && known.sha256 !== promised)) continue;
    const joined = await openJoined(
      storage,
      files.map(({ sha256 }) => contentName(sha256)),
      published.head,
      header,
    );
    if (!joined) continue;
    try {
      if (joined.size !== published.size || !(await isSame(joined, file, published, options))) continue;
      const sha256 = known?.sha256 ?? (await hashOf(joined, options.signal));
      if (promised !== null && sha256 !== promised) continue;
      const named = files.map((one) => ({ ...one, name: contentName(one.sha256) }));
      return { part: { sha256, size: joined.size }, files: named, etag: published.etag, header };
    } finally {
      joined.close();
    }
  }
  return null;
}

/**
 * @param {Map<string, number>} sizes
 * @param {number | null} size
 * @param {string | null} promised
 */
function candidates(sizes, size, promised) {
  return [...sizes].flatMap(([name, stored]) => {
    const sha256 = contentHash(name);
    const fits = sha256 !== null && (size === null ? promised !== null : stored === size);
    return fits && (promised === null || sha256 === promised) ? [{ sha256, size: stored }] : [];
  });
}

/**
 * @param {ReadableFile} stored
 * @param {RemoteFile} file
 * @param {Published} published
 * @param {AdoptionOptions} options
 * @returns {Promise<boolean>}
 */
async function isSame(stored, file, { head, ranges }, options) {
  if (!sameBytes(readAt(stored, 0, head.length), head)) return false;
  if (head.length >= stored.size) return true;
  if (!ranges) return false;
  for (const at of samples(head.length, stored.size, options.random ?? Math.random)) {
    const bytes = await fetchRange(file, at, Math.min(at + RANGE_BYTES, stored.size), options);
    if (!bytes || !sameBytes(readAt(stored, at, bytes.length), bytes)) return false;
  }
  return true;
}

/**
 * @param {number} from
 * @param {number} size
 * @param {() => number} random
 * @returns {number[]} where ranges begin; the last one ends with the file
 */
function samples(from, size, random) {
  const last = Math.max(from, size - RANGE_BYTES);
  const places = Array.from({ length: RANGES - 1 }, () => from + Math.floor(random() * (last - from)));
  return [...new Set([...places, last])];
}

/**
 * @param {RemoteFile} file
 * @param {number} start
 * @param {number} end
 * @param {AdoptionOptions} options
 * @returns {Promise<Uint8Array | null>} null when the server does not give exactly these bytes
 */
async function fetchRange({ url, headers }, start, end, { signal, fetch = globalThis.fetch }) {
  try {
    const response = await fetch(url, {
      headers: { ...headers, Range: `bytes=${start}-${end - 1}` },
      signal,
    });
    if (response.status !== 206) {
      await response.body?.cancel();
      return null;
    }
    const bytes = new Uint8Array(await response.arrayBuffer());
    return bytes.length === end - start ? bytes : null;
  } catch (error) {
    if (!signal?.aborted) return null;
    throw new HeadraceError("cancelled", "the download was cancelled", { cause: error });
  }
}

/**
 * @param {ReadableFile} file
 * @param {number} at
 * @param {number} length
 */
function readAt(file, at, length) {
  const bytes = new Uint8Array(length);
  return bytes.subarray(0, file.read(bytes, at));
}

/**
 * @param {Uint8Array} a
 * @param {Uint8Array} b
 */
function sameBytes(a, b) {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}
