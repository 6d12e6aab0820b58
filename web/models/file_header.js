// Reads the header of a file that is open, as far into the file as it goes.
//
// Counterparts: gguf_header.js, which parses it; blob_header.js, the same for files of the user's, which are
// checked more closely.

import { parseHeader } from "./gguf_header.js";

/** @import { GgufHeader, ReadableFile } from "./types.js" */

/** Of most files one read is enough. */
const FIRST_BYTES = 1024 * 1024;

/**
 * @param {ReadableFile} file
 * @param {string} name what errors call it
 * @returns {GgufHeader | null} null when the file ends within its header
 * @throws {HeadraceError} model_invalid; what the file's `read` throws
 */
export function fileHeader(file, name) {
  for (let length = FIRST_BYTES; ; length *= 4) {
    const bytes = new Uint8Array(Math.min(length, file.size));
    const header = parseHeader(bytes.subarray(0, file.read(bytes, 0)), name);
    if (header || bytes.length === file.size) return header;
  }
}
