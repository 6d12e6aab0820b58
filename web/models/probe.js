// Asks a server what a file is, by its first megabyte: size, version, whether it is a GGUF at all.
//
// Counterpart: download.js, which goes on from here; fetch_model.js asks for every file of a set before it
// fetches the bulk of any.

import { SNIFF_BYTES, requireGguf } from "./gguf.js";
import { Retries, requireFile, requireNotAborted } from "./retries.js";
import { Transient, request } from "./transport.js";

/** @import { Answer } from "./transport.js" */
/** @import { RemoteFile } from "./types.js" */

const HEAD_BYTES = 1024 * 1024;

/**
 * What a server tells of a file; `head` are its first bytes, a megabyte at most.
 * @typedef {{size: number | null, etag: string | null, lastModified: string | null, ranges: boolean,
 *   sha256: string | null, head: Uint8Array}} Published
 */

/** @typedef {{signal?: AbortSignal, stallMs?: number, backoffMs?: number, fetch?: typeof globalThis.fetch}} ProbeOptions */

/**
 * @param {RemoteFile} file
 * @param {ProbeOptions} [options]
 * @returns {Promise<Published>}
 * @throws {HeadraceError} download_failed, model_invalid (case F7), cancelled
 */
export async function probeFile(file, options = {}) {
  const retries = new Retries(file, options);
  for (;;) {
    try {
      return await probeOnce(file, options);
    } catch (error) {
      await retries.after(error, () => false);
    }
  }
}

/**
 * @param {RemoteFile} file
 * @param {ProbeOptions} options
 * @returns {Promise<Published>}
 */
async function probeOnce(file, options) {
  requireNotAborted(options.signal);
  let answer = await askForHead(file, options);
  // A server that answers 416 to this has an empty file, or no idea of ranges.
  if (answer.status === 416 || (answer.status === 206 && (answer.encoded || answer.start !== 0))) {
    answer.close();
    answer = await request(file, options);
  }
  try {
    requireFile(file, answer);
    const { total, etag, lastModified, encoded, sha256 } = answer;
    const head = await readHead(answer, total, file.name);
    requireGguf(head.subarray(0, SNIFF_BYTES), file.name);
    const ranges = answer.status === 206 && !encoded;
    const size = total ?? (ranges ? await askForSize(file, options) : null);
    return { size, etag, lastModified, ranges: ranges && size !== null, sha256, head };
  } finally {
    answer.close();
  }
}

/**
 * Whoever asks for a range wants it uncompressed, and browsers drop a response that is compressed all the same
 * (case D3); then the whole file may still be had.
 * @param {RemoteFile} file
 * @param {ProbeOptions} options
 */
async function askForHead(file, options) {
  try {
    return await request(file, { ...options, range: [0, HEAD_BYTES] });
  } catch (error) {
    requireNotAborted(options.signal);
    if (error instanceof Transient) return request(file, options);
    throw error;
  }
}

/**
 * @param {Answer} answer
 * @param {number | null} total
 * @param {string} name
 */
async function readHead(answer, total, name) {
  const head = new Uint8Array(Math.min(HEAD_BYTES, total ?? HEAD_BYTES));
  let filled = 0;
  for await (const chunk of answer.chunks()) {
    head.set(chunk.subarray(0, head.length - filled), filled);
    filled = Math.min(head.length, filled + chunk.length);
    // Nothing more than this is wanted of a file that is none of ours.
    if (filled >= SNIFF_BYTES) requireGguf(head.subarray(0, SNIFF_BYTES), name);
    if (filled === head.length) break;
  }
  return head.subarray(0, filled);
}

/**
 * Case D4: a server that hides the size of a range from other origins.
 * @param {RemoteFile} file
 * @param {ProbeOptions} options
 */
async function askForSize(file, options) {
  return (await sizeBy("HEAD", file, options)) ?? sizeBy("GET", file, options);
}

/**
 * @param {"HEAD" | "GET"} method
 * @param {RemoteFile} file
 * @param {ProbeOptions} options
 * @returns {Promise<number | null>} null when the server does not tell it so
 */
export async function sizeBy(method, file, options) {
  try {
    const answer = await request(file, { ...options, method });
    answer.close();
    return answer.status === 200 ? answer.total : null;
  } catch (error) {
    if (error instanceof Transient) return null;
    throw error;
  }
}
