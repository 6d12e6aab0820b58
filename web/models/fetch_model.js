// Brings a model into the store: one file or a set of shards, from the network or from local files.
//
// Counterparts: download.js brings one file, completion.js makes a model of what has come. Decides what has
// to be fetched at all; never retries, which download.js does.

import { adopt } from "./adoption.js";
import { blobHeader, requireOneFile } from "./blob_header.js";
import { complete, discard, readRecord, writeRecord } from "./completion.js";
import { fetchFile } from "./download.js";
import { parseHeader } from "./gguf_header.js";
import { importBlob } from "./import_file.js";
import { readJournal } from "./journal.js";
import { baseName, partialKey, randomName } from "./names.js";
import { probeFile } from "./probe.js";
import { ProgressMeter } from "./progress.js";
import { sha256Hex } from "./sha256.js";
import { orderShards, requireSeparate, shardOf } from "./split.js";

/** @import { HeadraceError } from "../errors.js" */
/** @import { Published } from "./probe.js" */
/** @import { ManifestIndex } from "./manifest_index.js" */
/** @import { FetchedFile, GgufHeader, Manifest, RemoteFile, RemoteModel } from "./types.js" */
/** @import { Storage, StoreProgress } from "./types.js" */

/**
 * How files are fetched and split, see download.js; tests make everything small.
 * @typedef {{connections?: number, maxWholeBytes?: number, shardBytes?: number, stallMs?: number,
 *   backoffMs?: number, fetch?: typeof globalThis.fetch}} TransferSettings
 */

/**
 * What the store lends to a download. `makeRoom` deletes other models when it may, but none that has a file
 * of `keep`, or throws storage_full; `full` is that error for a write that the browser has refused.
 * @typedef {object} FetchContext
 * @property {Storage} storage
 * @property {ManifestIndex} index
 * @property {TransferSettings} settings
 * @property {(name: string, neededBytes: number, keep?: string[]) => Promise<void>} makeRoom
 * @property {(keep: string[]) => Promise<boolean>} evictOne deletes another model, if it may and there is one
 * @property {(name: string, neededBytes: number) => Promise<HeadraceError>} full
 * @property {(progress: StoreProgress) => void} report
 * @property {AbortSignal} [signal]
 */

/**
 * What is known of one published file before it is fetched: `fetched` when it need not be, `published` when
 * the server was asked, and how many bytes an unfinished download has taken.
 * @typedef {{file: RemoteFile, fetched: FetchedFile | null, published: Published | null, size: number | null,
 *   have: number}} Look
 */

/** Small requests at once, when a set of shards is looked at. */
const LOOKS_AT_ONCE = 4;

/**
 * To be called by one worker at a time, see sharing.js.
 * @param {FetchContext} context
 * @param {RemoteModel} remote
 * @param {{pinned?: boolean, known?: Manifest | null}} options `known` is what is stored of this source; it
 *   is returned as it is when the server has nothing newer
 * @returns {Promise<Manifest>}
 * @throws {HeadraceError} as `fetchFile` does; invalid_request for shards that are no set; storage_full
 */
export async function fetchModel(context, remote, { pinned, known = null }) {
  const { storage, index, settings, signal } = context;
  // Every file of a set answers before the bulk of any is fetched (case F14).
  const looks = await inTurns(remote.files, (file) => look(context, file, known !== null));
  if (known && isUnchanged(known, looks)) return known;
  requireSet(looks);
  await index.repair();
  const here = { ...(await index.read()), signal, fetch: settings.fetch };
  await inTurns(looks, async (one) => {
    if (one.published) one.fetched = await adopt(storage, one.file, one.published, here);
  });

  const missing = looks.filter(({ fetched }) => !fetched);
  const needed = missing.reduce((sum, { size, have }) => sum + Math.max(0, (size ?? 0) - have), 0);
  const adopted = looks.flatMap(({ fetched }) => fetched?.files.map(({ sha256 }) => sha256) ?? []);
  await context.makeRoom(remote.name, needed, adopted);

  const meter = new ProgressMeter(
    "download",
    looks.map(({ size }) => size),
    context.report,
  );
  for (const [place, one] of looks.entries()) {
    if (one.fetched) meter.update(place, one.fetched.part.size, one.fetched.part.size);
  }
  for (;;) {
    try {
      for (const [place, one] of looks.entries()) {
        if (one.fetched) continue;
        one.fetched = await fetchFile(one.file, {
          ...settings,
          storage,
          signal,
          published: one.published,
          onBytes: (loaded, total) => meter.update(place, loaded, total),
        });
        await writeRecord(storage, one.file.key, one.fetched);
      }
      break;
    } catch (error) {
      if (isFull(error) && (await context.evictOne(adopted))) continue;
      meter.stop();
      throw await cleanedUp(context, error, remote, needed);
    }
  }
  if (missing.length > 0) meter.finish();
  else meter.stop();

  const whole = inOrder(
    looks.map(({ file, fetched }) => ({ file, fetched: /** @type {FetchedFile} */ (fetched) })),
  );
  const [first] = whole;
  return complete(
    storage,
    index,
    whole.map(({ fetched }) => fetched),
    {
      name: remote.name,
      sources: [{ key: first.file.key, display: first.file.display, etag: first.fetched.etag }],
      pinned,
      keys: remote.files.map(({ key }) => key),
    },
  );
}

/**
 * @param {FetchContext} context
 * @param {{blob: Blob, name: string, key: string}[]} files
 * @param {{name?: string, pinned?: boolean}} options
 * @returns {Promise<Manifest>}
 * @throws {HeadraceError} model_invalid, model_truncated, invalid_request, storage_full, cancelled
 */
export async function importModel(context, files, { name, pinned }) {
  const { storage, index, settings, signal } = context;
  const headers = await Promise.all(files.map((file) => blobHeader(file.blob, file.name)));
  for (const [place, { blob, name: called }] of files.entries()) {
    await requireOneFile(headers[place], blob, called);
  }
  const order = orderOf(files.map((file, place) => ({ name: file.name, header: headers[place] })));
  const ordered = order.map((place) => files[place]);
  const title = name ?? baseName(ordered[0].name);
  const size = ordered.reduce((sum, { blob }) => sum + blob.size, 0);
  await context.makeRoom(title, size);

  const meter = new ProgressMeter(
    "import",
    ordered.map(({ blob }) => blob.size),
    context.report,
  );
  /** @type {FetchedFile[]} */
  const fetched = [];
  try {
    for (const [place, { blob, name: called, key }] of ordered.entries()) {
      await discard(storage, key);
      const onBytes = (/** @type {number} */ loaded) => meter.update(place, loaded, blob.size);
      const { maxWholeBytes, shardBytes } = settings;
      fetched.push(
        await importBlob(blob, called, { storage, key, signal, onBytes, maxWholeBytes, shardBytes }),
      );
    }
  } catch (error) {
    meter.stop();
    for (const { key } of ordered) await discard(storage, key).catch(() => {});
    throw isFull(error) ? await context.full(title, size) : error;
  }
  meter.finish();
  return complete(storage, index, fetched, {
    name: title,
    sources: [],
    pinned,
    keys: ordered.map(({ key }) => key),
  });
}

/**
 * @param {Blob} blob
 * @param {string} name
 * @returns {Promise<string>} the key of its import; a file that is imported twice at once has one key
 */
export function importKey(blob, name) {
  const changed = /** @type {File} */ (blob).lastModified ?? randomName();
  return sha256Hex(`import ${name} ${blob.size} ${changed}`);
}

/**
 * @param {FetchContext} context
 * @param {RemoteFile} file
 * @param {boolean} afresh ask the server, whatever an unfinished download has left
 * @returns {Promise<Look>}
 */
async function look({ storage, settings, signal }, file, afresh) {
  if (!afresh) {
    const left = await leftOver(storage, file);
    if (left) return left;
  }
  const published = await probeFile(file, { ...settings, signal });
  return { file, fetched: null, published, size: published.size, have: 0 };
}

/**
 * What an earlier session has left of a file: then the server need not be asked what it is.
 * @param {Storage} storage
 * @param {RemoteFile} file
 * @returns {Promise<Look | null>}
 */
async function leftOver(storage, file) {
  const fetched = await readRecord(storage, file.key);
  if (fetched && (file.sha256 === null || file.sha256 === fetched.part.sha256)) {
    return { file, fetched, published: null, size: fetched.part.size, have: fetched.part.size };
  }
  const journal = await readJournal(storage, file.key);
  if (!journal || journal.ranges.length === 0) return null;
  // What is reserved for it counts as used already, whether its bytes have come or not.
  const stored = (await storage.list()).filter(({ name }) => partialKey(name) === file.key);
  const have = stored.reduce((sum, { size }) => sum + size, 0);
  return { file, fetched: null, published: null, size: journal.size, have };
}

/**
 * @param {Manifest} known
 * @param {Look[]} looks
 */
function isUnchanged({ parts, sources }, looks) {
  if (parts.length !== looks.length) return false;
  return looks.every(({ file, published }, place) => {
    const etag = sources.find(({ key }) => key === file.key)?.etag ?? null;
    const sameSize = published?.size === null || published?.size === parts[place].size;
    // Only of the first file the ETag is kept; of the others, the size has to do.
    return sameSize && (place > 0 || (etag !== null && etag === published?.etag));
  });
}

/**
 * Cases F10 to F12 and F14, as far as the first bytes tell.
 * @param {Look[]} looks
 */
function requireSet(looks) {
  const named = looks.flatMap(({ file, published, size }) => {
    const header = published && parseHeader(published.head, file.name);
    if (header && size !== null) requireSeparate(header, size, file.name);
    return header ? [{ name: file.name, header }] : [];
  });
  if (named.length === looks.length) orderOf(named);
}

/**
 * @param {{file: RemoteFile, fetched: FetchedFile}[]} files
 */
function inOrder(files) {
  // A large file that was split here is one published file, though what is stored of it says otherwise.
  if (files.length === 1 && files[0].fetched.files.length > 1) return files;
  const order = orderOf(files.map(({ file, fetched }) => ({ name: file.name, header: fetched.header })));
  return order.map((place) => files[place]);
}

/**
 * @param {{name: string, header: GgufHeader}[]} files
 * @returns {number[]}
 */
export function orderOf(files) {
  if (files.length === 1 && !shardOf(files[0].header)) return [0];
  return orderShards(files);
}

/**
 * Case D6: what was written of a download that found no room is removed.
 * @param {FetchContext} context
 * @param {unknown} error
 * @param {RemoteModel} remote
 * @param {number} needed
 */
async function cleanedUp({ storage, full }, error, remote, needed) {
  if (!isFull(error)) return error;
  for (const { key } of remote.files) await discard(storage, key).catch(() => {});
  return full(remote.name, needed);
}

/** @param {unknown} error */
function isFull(error) {
  return /** @type {{code?: unknown} | null} */ (error)?.code === "storage_full";
}

/**
 * @template T, R
 * @param {T[]} items
 * @param {(item: T) => Promise<R>} action
 * @returns {Promise<R[]>} in the order of the items
 */
async function inTurns(items, action) {
  /** @type {R[]} */
  const results = [];
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const place = next++;
      results[place] = await action(items[place]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(LOOKS_AT_ONCE, items.length) }, work));
  return results;
}
