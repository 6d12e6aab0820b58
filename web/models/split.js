// Where a large model is cut into shards on its way to the disk, and which files make up one model.
//
// Counterparts: headrace/models/split.py is the Python twin and plans the same bytes; llama.cpp's model
// loader finds the shards by what is written here. Reads and writes no file.

import { HeadraceError } from "../errors.js";
import { alignUp, headerSpans } from "./gguf_header.js";
import { shardNames } from "./shard_names.js";

/** @import { HeaderSpans } from "./gguf_header.js" */
/** @import { GgufHeader, Piece } from "./types.js" */

/** A published file of up to so many bytes is stored whole. */
export const MAX_WHOLE_BYTES = 2 ** 31;
/** A shard has at most so many bytes, its header included, unless a single tensor has more. */
export const SHARD_BYTES = 2 ** 29;

const SPLIT_PREFIX = "split.";
const SHARD_NUMBER = "split.no";
const SHARD_COUNT = "split.count";
const TENSOR_COUNT = "split.tensors.count";
/** Their number is a uint16. */
const MAX_SHARDS = 0xffff;
/** Every shard begins with a whole unit of the alignment: with a larger one than this a file stays whole. */
const MAX_SPLIT_ALIGNMENT = 2 ** 20;

const UINT16 = 2;
const INT32 = 5;
/** Magic, version, number of tensors, number of metadata entries. */
const HEADER_START_BYTES = 4 + 4 + 8 + 8;

const encoder = new TextEncoder();

/**
 * Which bytes of a published file go into which stored file. A file that stays whole is one piece without a
 * header: one of up to `maxWholeBytes`, one of unknown size, and a shard of a published set.
 * @param {GgufHeader} header
 * @param {Uint8Array} headBytes the published file from its first byte, at least to the end of its header
 * @param {number | null} size of the published file
 * @param {{maxWholeBytes?: number, shardBytes?: number, name?: string}} [limits] `name` is how a message
 *   calls the file
 * @returns {Piece[]}
 * @throws {HeadraceError} model_truncated when the tensors do not fit into `size`; model_invalid when tensors
 *   overlap, or too many shards would be needed
 */
export function planPieces(
  header,
  headBytes,
  size,
  { maxWholeBytes = MAX_WHOLE_BYTES, shardBytes = SHARD_BYTES, name = "the model" } = {},
) {
  if (size !== null) requireWhole(header, size, name);
  const whole = [{ header: null, start: 0, end: size }];
  if (size === null || size <= maxWholeBytes || header.alignment > MAX_SPLIT_ALIGNMENT) return whole;
  if (shardOf(header) !== null) return whole;

  const spans = headerSpans(headBytes, name);
  if (spans === null) {
    throw new HeadraceError("internal", `the header of ${name} was planned before it was there`);
  }
  const shards = cut(header, spans, size, shardBytes, name);
  if (shards.length < 2) return whole;
  if (shards.length > MAX_SHARDS) {
    throw new HeadraceError("model_invalid", `${name} would have to be split into ${shards.length} shards`);
  }
  return shards.map((shard, index) => ({
    header: writeHeader(header, spans, headBytes, shard, index, shards.length),
    start: shard.start,
    end: shard.end,
  }));
}

/**
 * @param {GgufHeader} header
 * @param {number} size
 * @param {string} name
 */
function requireWhole(header, size, name) {
  if (size >= header.dataEnd) return;
  throw new HeadraceError(
    "model_truncated",
    `${name} is cut short: its tensors need ${header.dataEnd} bytes, it has ${size}`,
    { detail: { name, expectedBytes: header.dataEnd, actualBytes: size } },
  );
}

/**
 * Tensors by their places in the file's list, and the published bytes that hold them.
 * @typedef {{tensors: number[], start: number, end: number}} Shard
 */

/**
 * @param {GgufHeader} header
 * @param {HeaderSpans} spans
 * @param {number} size
 * @param {number} shardBytes
 * @param {string} name
 * @returns {Shard[]}
 */
function cut(header, spans, size, shardBytes, name) {
  const groups = groupByStart(header, size, name);
  /** @type {Shard[]} */
  const shards = [];
  let headerBytes = 0;
  for (const group of groups) {
    let infoBytes = 0;
    for (const index of group.tensors) infoBytes += length(spans.tensors[index]);
    const last = shards.at(-1);
    if (last !== undefined) {
      const bytes = alignUp(headerBytes + infoBytes, header.alignment) + (group.end - last.start);
      if (bytes <= shardBytes) {
        last.tensors.push(...group.tensors);
        last.end = group.end;
        headerBytes += infoBytes;
        continue;
      }
    }
    shards.push({ ...group });
    headerBytes = HEADER_START_BYTES + metadataBytes(header, spans, shards.length === 1) + infoBytes;
  }
  return shards;
}

/**
 * Tensors that begin at the same byte (empty ones beside another) stay together. Each group reaches to the
 * beginning of the next one, so that the paddings between come along.
 * @param {GgufHeader} header
 * @param {number} size
 * @param {string} name
 * @returns {Shard[]}
 */
function groupByStart({ tensors, dataStart }, size, name) {
  const order = [...tensors.keys()].sort((one, other) => {
    const [a, b] = [tensors[one], tensors[other]];
    return a.offset - b.offset || a.bytes - b.bytes || one - other;
  });
  /** @type {Shard[]} */
  const groups = [];
  let free = 0;
  for (const index of order) {
    const { offset, bytes, name: tensor } = tensors[index];
    if (offset < free) {
      throw new HeadraceError(
        "model_invalid",
        `${name} is damaged: the tensor ${tensor} begins inside of another one`,
        { detail: { name, tensor } },
      );
    }
    const last = groups.at(-1);
    // What lies before the first tensor, if anything, belongs to the first shard.
    const start = last === undefined ? dataStart : dataStart + offset;
    if (last !== undefined && dataStart + tensors[last.tensors[0]].offset === start) last.tensors.push(index);
    else {
      if (last !== undefined) last.end = start;
      groups.push({ tensors: [index], start, end: size });
    }
    free = offset + bytes;
  }
  return groups;
}

/** @param {{start: number, end: number}} span */
const length = ({ start, end }) => end - start;

/**
 * The entries that a shard takes over as they are: the first one all that do not tell of another splitting,
 * the others only the alignment, without which they could not be read.
 * @param {HeaderSpans} spans
 * @param {boolean} isFirst
 */
function keptMetadata(spans, isFirst) {
  return spans.metadata.filter(({ key }) =>
    isFirst ? !key.startsWith(SPLIT_PREFIX) : key === "general.alignment",
  );
}

/**
 * @param {GgufHeader} header
 * @param {HeaderSpans} spans
 * @param {boolean} isFirst
 */
function metadataBytes(header, spans, isFirst) {
  const added = splitMetadata(0, 0, header.tensors.length);
  return [...keptMetadata(spans, isFirst).map(length), ...added.map((bytes) => bytes.length)].reduce(
    (sum, bytes) => sum + bytes,
    0,
  );
}

/**
 * @param {GgufHeader} header
 * @param {HeaderSpans} spans
 * @param {Uint8Array} headBytes
 * @param {Shard} shard
 * @param {number} index from 0
 * @param {number} count
 */
function writeHeader(header, spans, headBytes, shard, index, count) {
  const kept = keptMetadata(spans, index === 0);
  const added = splitMetadata(index, count, header.tensors.length);
  const start = new Uint8Array(HEADER_START_BYTES);
  start.set(encoder.encode("GGUF"));
  const view = new DataView(start.buffer);
  view.setUint32(4, 3, true);
  view.setBigUint64(8, BigInt(shard.tensors.length), true);
  view.setBigUint64(16, BigInt(kept.length + added.length), true);

  const parts = [start, ...kept.map((span) => headBytes.subarray(span.start, span.end)), ...added];
  for (const tensor of shard.tensors) {
    // A copy whatever kind of view the caller has: the slice of Node's Buffer is none.
    const info = Uint8Array.from(headBytes.subarray(spans.tensors[tensor].start, spans.tensors[tensor].end));
    const offset = header.dataStart + header.tensors[tensor].offset - shard.start;
    new DataView(info.buffer).setBigUint64(info.length - 8, BigInt(offset), true);
    parts.push(info);
  }
  const bytes = parts.reduce((sum, part) => sum + part.length, 0);
  const written = new Uint8Array(alignUp(bytes, header.alignment));
  let at = 0;
  for (const part of parts) {
    written.set(part, at);
    at += part.length;
  }
  return written;
}

/**
 * What llama.cpp's loader asks of a shard, as its gguf-split writes it.
 * @param {number} index
 * @param {number} count
 * @param {number} tensors of all shards
 */
function splitMetadata(index, count, tensors) {
  return [
    scalarEntry(SHARD_NUMBER, UINT16, index),
    scalarEntry(SHARD_COUNT, UINT16, count),
    scalarEntry(TENSOR_COUNT, INT32, tensors),
  ];
}

/**
 * @param {string} key
 * @param {number} type
 * @param {number} value
 */
function scalarEntry(key, type, value) {
  const keyBytes = encoder.encode(key);
  const entry = new Uint8Array(8 + keyBytes.length + 4 + (type === UINT16 ? 2 : 4));
  const view = new DataView(entry.buffer);
  view.setBigUint64(0, BigInt(keyBytes.length), true);
  entry.set(keyBytes, 8);
  view.setUint32(8 + keyBytes.length, type, true);
  if (type === UINT16) view.setUint16(12 + keyBytes.length, value, true);
  else view.setUint32(12 + keyBytes.length, value, true);
  return entry;
}

/**
 * Which shard of how many a file is.
 * @param {GgufHeader} header
 * @returns {{index: number, count: number} | null} `index` from 1; null for a model in one file
 * @throws {HeadraceError} model_invalid when it says that it is a shard, and not which
 */
export function shardOf({ metadata }) {
  const count = integer(metadata.get(SHARD_COUNT));
  if (count === null || count < 2) return null;
  const number = integer(metadata.get(SHARD_NUMBER));
  if (number === null || number < 0 || number >= count || count > MAX_SHARDS) {
    throw new HeadraceError(
      "model_invalid",
      `the file says that it is one of ${count} shards, and not rightly which (${SHARD_NUMBER})`,
      { detail: { kind: "shard", count } },
    );
  }
  return { index: number + 1, count };
}

/** @param {unknown} value */
function integer(value) {
  if (typeof value === "bigint") return Number(value);
  return typeof value === "number" && Number.isInteger(value) ? value : null;
}

/**
 * Case F12: shards of one model that were joined into one file, which no engine can read.
 * @param {GgufHeader} header
 * @param {number} size of the file
 * @param {string} name
 * @param {Uint8Array | null} [following] the file's bytes from `header.dataEnd` on, as many as are at hand;
 *   an alignment and eight bytes are enough. With them two models after each other are recognised too.
 * @throws {HeadraceError} model_invalid
 */
export function requireSeparate(header, size, name, following = null) {
  const end = alignUp(header.dataEnd, header.alignment);
  if (size < end + HEADER_START_BYTES) return;
  const shard = shardOf(header);
  if (following !== null ? !holdsHeader(following) : shard === null) return;
  const what =
    shard === null ? "several GGUF files" : `several of the ${shard.count} shards of its model`;
  throw new HeadraceError(
    "model_invalid",
    `${name} is made of ${what}, joined into one file: use the separate files, for they cannot be joined so`,
    { detail: { name, kind: "joined", ...(shard && { count: shard.count }) } },
  );
}

/** @param {Uint8Array} bytes */
function holdsHeader(bytes) {
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return text.includes("GGUF\x02\0\0\0") || text.includes("GGUF\x03\0\0\0");
}

/**
 * The order in which files load: cases F10 (shards in any order, also without names), F11 (only some of them
 * chosen) and F14. One file that is a whole model is its own order.
 * @param {{name: string, header: GgufHeader}[]} files
 * @returns {number[]} places in `files`
 * @throws {HeadraceError} invalid_request that names what is missing, doubled or foreign; model_invalid
 */
export function orderShards(files) {
  const shards = files.map(({ header }) => shardOf(header));
  const first = shards.find((shard) => shard !== null);
  if (first === undefined || first === null) {
    if (files.length === 1) return [0];
    throw files.length === 0
      ? refused("no file was given", {})
      : refused(`${files[1].name} is no shard of a model in several files`, { foreign: [files[1].name] });
  }
  const alone = shards.findIndex((shard) => shard?.count !== first.count);
  if (alone >= 0) {
    const { name } = files[alone];
    throw refused(`${name} is not one of the ${first.count} shards that the other files belong to`, {
      foreign: [name],
    });
  }
  /** @type {Map<number, number>} */
  const places = new Map();
  for (const [place, shard] of shards.entries()) {
    const index = /** @type {{index: number}} */ (shard).index;
    const other = places.get(index);
    if (other !== undefined) {
      const doubled = [files[other].name, files[place].name];
      throw refused(`${doubled[0]} and ${doubled[1]} are both shard ${index} of ${first.count}`, { doubled });
    }
    places.set(index, place);
  }
  requireComplete(files, places, first.count);
  const order = Array.from({ length: first.count }, (_, i) => /** @type {number} */ (places.get(i + 1)));
  requireOneModel(files, order);
  return order;
}

/** How many missing shards a sentence names. */
const NAMED = 5;

/**
 * @param {{name: string}[]} files
 * @param {Map<number, number>} places
 * @param {number} count
 */
function requireComplete(files, places, count) {
  if (places.size === count) return;
  const [index, place] = /** @type {[number, number]} */ (places.entries().next().value);
  const known = shardNames(files[place].name);
  const names = known?.count === count && known.index === index ? known.names : null;
  const missing = [];
  for (let i = 1; i <= count; i++) {
    if (!places.has(i)) missing.push(names ? names[i - 1] : `shard ${i}`);
  }
  const listed = missing.slice(0, NAMED).join(", ") + (missing.length > NAMED ? ", …" : "");
  const given =
    places.size === 1
      ? `${files[place].name} is shard ${index} of ${count}`
      : `the model has ${count} shards`;
  throw refused(`${given}: ${listed} must be given too`, { missing, count });
}

/**
 * @param {{name: string, header: GgufHeader}[]} files
 * @param {number[]} order
 */
function requireOneModel(files, order) {
  const expected = integer(files[order[0]].header.metadata.get(TENSOR_COUNT));
  const seen = new Set();
  for (const place of order) {
    const { name, header } = files[place];
    const own = integer(header.metadata.get(TENSOR_COUNT));
    const doubled = header.tensors.find((tensor) => seen.has(tensor.name));
    if (own !== expected || doubled !== undefined) {
      throw refused(`${name} is a shard of another model than ${files[order[0]].name}`, { foreign: [name] });
    }
    for (const tensor of header.tensors) seen.add(tensor.name);
  }
  if (expected !== null && seen.size !== expected) {
    const counts = `${seen.size} tensors instead of ${expected}`;
    throw refused(`the shards hold ${counts}: they are of different models`, {});
  }
}

/**
 * @param {string} sentence
 * @param {Record<string, unknown>} detail
 */
function refused(sentence, detail) {
  return new HeadraceError("invalid_request", sentence, { detail });
}
