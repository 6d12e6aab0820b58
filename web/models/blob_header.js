// Reads the header of a local file, as far into the file as it goes.
//
// Counterpart: gguf_header.js, which parses it. Not a copy of the file: of most, one megabyte is read.

import { HeadraceError } from "../errors.js";
import { SNIFF_BYTES, requireGguf } from "./gguf.js";
import { parseHeader } from "./gguf_header.js";
import { requireSeparate } from "./split.js";

/** @import { GgufHeader } from "./types.js" */

const FIRST_BYTES = 1024 * 1024;
/** With which a GGUF file begins: "GGUF" and a version. */
const MAGIC_BYTES = 8;

/**
 * @param {Blob} blob
 * @param {string} name
 * @returns {Promise<GgufHeader>}
 * @throws {HeadraceError} model_not_found when it cannot be read, model_invalid, model_truncated
 */
export async function blobHeader(blob, name) {
  for (let length = FIRST_BYTES; ; length *= 4) {
    const bytes = await firstBytes(blob, length, name);
    requireGguf(bytes.subarray(0, SNIFF_BYTES), name);
    const header = parseHeader(bytes, name);
    if (header) return header;
    if (length >= blob.size) {
      throw new HeadraceError("model_truncated", `${name} ends within its header, after ${blob.size} bytes`, {
        detail: { name, actual: blob.size },
      });
    }
  }
}

/**
 * Case F12.
 * @param {GgufHeader} header
 * @param {Blob} blob
 * @param {string} name
 * @throws {HeadraceError} model_invalid, when several files were joined into this one
 */
export async function requireOneFile(header, blob, name) {
  const behind = blob.slice(header.dataEnd, header.dataEnd + header.alignment + MAGIC_BYTES);
  requireSeparate(header, blob.size, name, await firstBytes(behind, behind.size, name));
}

/**
 * @param {Blob} blob
 * @param {number} length
 * @param {string} name
 * @returns {Promise<Uint8Array>}
 */
async function firstBytes(blob, length, name) {
  const bytes = await blob
    .slice(0, length)
    .arrayBuffer()
    .catch((error) => {
      throw HeadraceError.from(error, "model_not_found", `${name} could not be read`);
    });
  return new Uint8Array(bytes);
}
