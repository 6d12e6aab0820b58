// Tells from a file's first bytes whether it can be a GGUF model, and if not, what it is instead.
//
// Counterpart: native/engine reads the file for real. Not a parser: it only keeps a saved error page or a
// Git-LFS pointer from costing gigabytes of download before anyone notices.

import { HeadraceError } from "../errors.js";

/** Bytes that `requireGguf` needs to see, or the whole file if it is shorter. */
export const SNIFF_BYTES = 512;

/** Magic, version, number of tensors, number of metadata entries. */
const HEADER_BYTES = 4 + 4 + 8 + 8;

/** @type {readonly {kind: string, looks: RegExp, sentence: string}[]} */
const IMPOSTORS = [
  {
    kind: "lfs",
    looks: /^version https:\/\/git-lfs/,
    sentence: "is a Git-LFS pointer, not the model it points to: download the file itself",
  },
  {
    kind: "html",
    looks: /^\s*<(!doctype|html|head|body|!--)/i,
    sentence: "is an HTML page, probably an error or login page",
  },
  {
    kind: "xml",
    looks: /^\s*<\?xml/i,
    sentence: "is an XML document, probably an error message of a storage server",
  },
  { kind: "json", looks: /^\s*[{[]/, sentence: "is JSON, probably an error message of a server" },
  { kind: "gzip", looks: /^\x1f\x8b/, sentence: "is compressed with gzip: unpack it first" },
  { kind: "zip", looks: /^PK[\x03\x05]/, sentence: "is a zip archive (or a PyTorch file), not a GGUF model" },
  { kind: "safetensors", looks: /^[^]{8}\{/, sentence: "is a safetensors file: convert it to GGUF first" },
];

/**
 * @param {Uint8Array} head the file's first SNIFF_BYTES bytes, or all of it if it is shorter
 * @param {string} name how the message calls the file
 * @throws {HeadraceError} model_invalid
 */
export function requireGguf(head, name) {
  if (head.length === 0) throw invalid(name, "empty", "is empty");

  // Latin-1 keeps one character per byte, which is what the patterns are written for.
  const text = String.fromCharCode(...head.subarray(0, SNIFF_BYTES)).replace(/^\xef\xbb\xbf/, "");
  if (!text.startsWith("GGUF")) {
    const found = IMPOSTORS.find(({ looks }) => looks.test(text));
    throw invalid(
      name,
      found?.kind ?? "unknown",
      found?.sentence ?? 'is not a GGUF model: it does not begin with "GGUF"',
    );
  }
  if (head.length < HEADER_BYTES) {
    throw invalid(name, "short", `is not a whole GGUF model: it ends after ${head.length} bytes`);
  }
  const version = new DataView(head.buffer, head.byteOffset).getUint32(4, true);
  if (version > 0xffff)
    throw invalid(name, "big-endian", "is a big-endian GGUF model, which no browser can run");
}

/**
 * @param {string} name
 * @param {string} kind
 * @param {string} sentence
 */
function invalid(name, kind, sentence) {
  return new HeadraceError("model_invalid", `${name} ${sentence}`, { detail: { name, kind } });
}
