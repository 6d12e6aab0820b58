// Reads a GGUF header: metadata, tensors, and where their bytes lie. Vocabularies are passed over, not read.
//
// Counterparts: headrace/models/gguf.py is the Python twin with the same judgement and the same sentences;
// native/engine/model_file.cpp judges the file finally, and refuses at least what is refused here. Not a
// check of the model itself.

import { HeadraceError } from "../errors.js";
import { TENSOR_TYPES } from "./gguf_types.js";

/** @import { GgufHeader, GgufTensor } from "./types.js" */

/** A header that would be longer than this is taken for damaged: those of real models have up to 40 MB. */
export const MAX_HEADER_BYTES = 2 ** 28;

const ALIGNMENT_KEY = "general.alignment";
const DEFAULT_ALIGNMENT = 32;
const MAX_DIMENSIONS = 4;
/** The format allows 64, ggml can be built for 128. */
const MAX_TENSOR_NAME_BYTES = 127;

const UINT32 = 4;
const STRING = 8;
const ARRAY = 9;
/** Bytes of a scalar, by its type's number. */
const SCALAR_BYTES = new Map([
  [0, 1],
  [1, 1],
  [2, 2],
  [3, 2],
  [UINT32, 4],
  [5, 4],
  [6, 4],
  [7, 1],
  [10, 8],
  [11, 8],
  [12, 8],
]);

/** The least that one entry takes: empty names and values. */
const LEAST_METADATA_BYTES = 8 + 4 + 1;
const LEAST_TENSOR_BYTES = 8 + 4 + 4 + 8;

/**
 * Where each entry is written, from its first byte to the one behind its last.
 * @typedef {{metadata: {key: string, start: number, end: number}[],
 *   tensors: {start: number, end: number}[]}} HeaderSpans
 */

/** More bytes of the file are needed. */
class HeaderGoesOn extends Error {}

/**
 * @param {Uint8Array} bytes the file's first bytes
 * @param {string} name how a message calls the file
 * @param {number | null} [size] of the whole file, when it is known: a header that cannot lie in it is
 *   refused at once
 * @returns {GgufHeader | null} null when the header goes on behind `bytes`
 * @throws {HeadraceError} model_invalid; model_truncated when it goes on behind `size`
 */
export function parseHeader(bytes, name, size = null) {
  return readWhole(bytes, name, size)?.header ?? null;
}

/**
 * Where the entries of a header lie, in the order of the file; null as with `parseHeader`.
 * @param {Uint8Array} bytes
 * @param {string} name
 * @returns {HeaderSpans | null}
 * @throws {HeadraceError} model_invalid
 */
export function headerSpans(bytes, name) {
  return readWhole(bytes, name, null)?.spans ?? null;
}

/**
 * The next multiple of `alignment`.
 * @param {number} at
 * @param {number} alignment
 */
export function alignUp(at, alignment) {
  return Math.ceil(at / alignment) * alignment;
}

/**
 * @param {Uint8Array} bytes
 * @param {string} name
 * @param {number | null} size
 */
function readWhole(bytes, name, size) {
  try {
    return readHeader(new Cursor(bytes, name, size));
  } catch (error) {
    if (error instanceof HeaderGoesOn) return null;
    throw error;
  }
}

/** Reads on through the bytes that are there. */
class Cursor {
  /**
   * @param {Uint8Array} bytes
   * @param {string} name
   * @param {number | null} size
   */
  constructor(bytes, name, size) {
    this.bytes = bytes;
    this.name = name;
    this.size = size;
    this.at = 0;
    this.end = Math.min(bytes.length, MAX_HEADER_BYTES, size ?? Infinity);
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    // Keeps a leading byte order mark, as the Python twin does.
    this.decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  }

  /** @param {string} why @returns {never} */
  refuse(why) {
    throw new HeadraceError("model_invalid", `${this.name} is damaged: ${why}`, {
      detail: { name: this.name, kind: "header" },
    });
  }

  /**
   * Refuses at once what can never be there, however many bytes come.
   * @param {number} count bytes from here on
   */
  expect(count) {
    const end = this.at + count;
    if (end > MAX_HEADER_BYTES) this.refuse(`its header would have more than ${MAX_HEADER_BYTES} bytes`);
    if (this.size !== null && end > this.size) {
      throw new HeadraceError("model_truncated", `${this.name} is cut short, within its header`, {
        detail: { name: this.name, actualBytes: this.size },
      });
    }
  }

  /**
   * @param {number} count
   * @returns {number} where they begin
   */
  skip(count) {
    const begin = this.at;
    if (begin + count > this.end) {
      this.expect(count);
      throw new HeaderGoesOn();
    }
    this.at = begin + count;
    return begin;
  }

  u32() {
    return this.view.getUint32(this.skip(4), true);
  }

  /** A count, length or offset; every one of them that a real file has is exact as a number. */
  u64() {
    const begin = this.skip(8);
    const high = this.view.getUint32(begin + 4, true);
    if (high > 0x1fffff) this.refuse("a number in its header has more than 53 bits");
    return high * 2 ** 32 + this.view.getUint32(begin, true);
  }

  /** The bytes of a string, not yet read. */
  string() {
    const length = this.u64();
    const begin = this.skip(length);
    return this.bytes.subarray(begin, begin + length);
  }

  /** @param {Uint8Array} bytes */
  decode(bytes) {
    // A decoder does not take a view of shared memory.
    return this.decoder.decode(bytes.buffer instanceof ArrayBuffer ? bytes : bytes.slice());
  }
}

/** @param {Cursor} cursor */
function readHeader(cursor) {
  requireMagic(cursor);
  const tensorCount = cursor.u64();
  const metadataCount = cursor.u64();
  cursor.expect(metadataCount * LEAST_METADATA_BYTES + tensorCount * LEAST_TENSOR_BYTES);

  const metadataStart = cursor.at;
  const { metadata, spans: metadataSpans } = readMetadata(cursor, metadataCount);
  const metadataEnd = cursor.at;
  const alignment = /** @type {number} */ (metadata.get(ALIGNMENT_KEY) ?? DEFAULT_ALIGNMENT);

  const { tensors, spans: tensorSpans } = readTensors(cursor, tensorCount, alignment);
  const dataStart = tensorCount > 0 ? alignUp(cursor.at, alignment) : cursor.at;
  let dataEnd = dataStart;
  for (const tensor of tensors) {
    dataEnd = Math.max(dataEnd, dataStart + tensor.offset + tensor.bytes);
  }
  if (dataEnd > Number.MAX_SAFE_INTEGER) cursor.refuse("its tensors end behind 2^53 bytes");

  /** @type {GgufHeader} */
  const header = {
    alignment,
    metadata,
    metadataCount,
    metadataBytes: [metadataStart, metadataEnd],
    tensors,
    dataStart,
    dataEnd,
  };
  return { header, spans: { metadata: metadataSpans, tensors: tensorSpans } };
}

/** @param {Cursor} cursor */
function requireMagic(cursor) {
  for (let i = 0; i < Math.min(4, cursor.bytes.length); i++) {
    if (cursor.bytes[i] !== "GGUF".charCodeAt(i)) {
      throw new HeadraceError(
        "model_invalid",
        `${cursor.name} is not a GGUF model: it does not begin with "GGUF"`,
        { detail: { name: cursor.name, kind: "unknown" } },
      );
    }
  }
  cursor.skip(4);
  const version = cursor.u32();
  if (version !== 2 && version !== 3) {
    cursor.refuse(`it is of GGUF version ${version}, but only 2 and 3 can be read`);
  }
}

/**
 * @param {Cursor} cursor
 * @param {number} count
 */
function readMetadata(cursor, count) {
  /** @type {GgufHeader["metadata"]} */
  const metadata = new Map();
  /** @type {HeaderSpans["metadata"]} */
  const spans = [];
  const seen = new Set();
  for (let i = 0; i < count; i++) {
    const start = cursor.at;
    const keyBytes = cursor.string();
    const key = cursor.decode(keyBytes);
    if (key === "") cursor.refuse("a metadata key is empty");
    const identity = identify(keyBytes);
    if (seen.has(identity)) cursor.refuse(`the metadata key ${key} is there twice`);
    seen.add(identity);
    const type = cursor.u32();
    const value = readValue(cursor, type, key);
    if (key === ALIGNMENT_KEY) requireAlignment(cursor, type, value);
    metadata.set(key, value);
    spans.push({ key, start, end: cursor.at });
  }
  return { metadata, spans };
}

/**
 * @param {Cursor} cursor
 * @param {number} type
 * @param {string} key
 */
function readValue(cursor, type, key) {
  if (type === STRING) return cursor.decode(cursor.string());
  if (type !== ARRAY) return readScalar(cursor, type, key);
  const element = cursor.u32();
  const length = cursor.u64();
  if (element === STRING) {
    cursor.expect(length * 8);
    for (let i = 0; i < length; i++) cursor.skip(cursor.u64());
  } else {
    const bytes = SCALAR_BYTES.get(element);
    if (bytes === undefined) cursor.refuse(`the value of ${key} is an array of the unknown type ${element}`);
    cursor.skip(length * bytes);
  }
  return { type: element, length };
}

/**
 * @param {Cursor} cursor
 * @param {number} type
 * @param {string} key
 * @returns {number | bigint | boolean}
 */
function readScalar(cursor, type, key) {
  const bytes = SCALAR_BYTES.get(type);
  if (bytes === undefined) cursor.refuse(`the value of ${key} is of the unknown type ${type}`);
  const { view } = cursor;
  const at = cursor.skip(bytes);
  switch (type) {
    case 0:
      return view.getUint8(at);
    case 1:
      return view.getInt8(at);
    case 2:
      return view.getUint16(at, true);
    case 3:
      return view.getInt16(at, true);
    case UINT32:
      return view.getUint32(at, true);
    case 5:
      return view.getInt32(at, true);
    case 6:
      return view.getFloat32(at, true);
    case 7:
      return view.getUint8(at) !== 0;
    case 10:
      return view.getBigUint64(at, true);
    case 11:
      return view.getBigInt64(at, true);
    default:
      return view.getFloat64(at, true);
  }
}

/**
 * Case F2.
 * @param {Cursor} cursor
 * @param {number} type
 * @param {unknown} value
 */
function requireAlignment(cursor, type, value) {
  if (type !== UINT32) cursor.refuse(`${ALIGNMENT_KEY} is not a uint32`);
  const alignment = /** @type {number} */ (value);
  if (alignment === 0 || !Number.isInteger(Math.log2(alignment))) {
    cursor.refuse(`${ALIGNMENT_KEY} is ${alignment}, which is not a power of two`);
  }
}

/**
 * @param {Cursor} cursor
 * @param {number} count
 * @param {number} alignment
 */
function readTensors(cursor, count, alignment) {
  cursor.expect(count * LEAST_TENSOR_BYTES);
  /** @type {GgufTensor[]} */
  const tensors = [];
  /** @type {HeaderSpans["tensors"]} */
  const spans = [];
  const seen = new Set();
  for (let i = 0; i < count; i++) {
    const start = cursor.at;
    const nameBytes = cursor.string();
    if (nameBytes.length > MAX_TENSOR_NAME_BYTES) {
      cursor.refuse(`the name of a tensor has ${nameBytes.length} bytes`);
    }
    const tensor = readTensor(cursor, cursor.decode(nameBytes), alignment);
    const identity = identify(nameBytes);
    if (seen.has(identity)) cursor.refuse(`the tensor ${tensor.name} is there twice`);
    seen.add(identity);
    tensors.push(tensor);
    spans.push({ start, end: cursor.at });
  }
  return { tensors, spans };
}

/**
 * @param {Cursor} cursor
 * @param {string} name
 * @param {number} alignment
 * @returns {GgufTensor}
 */
function readTensor(cursor, name, alignment) {
  const dimensions = cursor.u32();
  if (dimensions > MAX_DIMENSIONS) cursor.refuse(`the tensor ${name} has ${dimensions} dimensions`);
  const shape = [];
  let elements = 1;
  for (let i = 0; i < dimensions; i++) {
    const length = cursor.u64();
    shape.push(length);
    elements *= length;
    if (elements > Number.MAX_SAFE_INTEGER) cursor.refuse(`the tensor ${name} has more than 2^53 elements`);
  }
  const id = cursor.u32();
  const type = TENSOR_TYPES.get(id);
  if (type === undefined) cursor.refuse(`the tensor ${name} is of the unknown type ${id}`);
  const row = shape[0] ?? 1;
  if (row % type.blockElements !== 0) {
    const blocks = `${type.name} blocks`;
    cursor.refuse(`the rows of the tensor ${name} have ${row} elements, which are no whole ${blocks}`);
  }
  const bytes = (elements / type.blockElements) * type.blockBytes;
  const offset = cursor.u64();
  if (bytes > Number.MAX_SAFE_INTEGER) cursor.refuse(`the tensor ${name} has more than 2^53 bytes`);
  if (offset % alignment !== 0) {
    cursor.refuse(`the tensor ${name} begins at ${offset}, which is no multiple of ${alignment}`);
  }
  return { name, shape, type: id, offset, bytes };
}

/**
 * Bytes as a text that differs when they do, which a decoded text need not.
 * @param {Uint8Array} bytes
 */
function identify(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}
