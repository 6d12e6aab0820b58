// Streams a model from a URL into a Blob, which a browser may keep on disk rather than in memory.
//
// Counterpart: worker/model_source.js, which asks for it. Not a store: nothing is kept or continued after
// the call, and a transfer that breaks off is an error. Cancelled by ending the worker it runs in.

import { HeadraceError } from "../errors.js";
import { SNIFF_BYTES, requireGguf } from "./gguf.js";

/** Chunks are folded into a Blob each time this many bytes have come, so that the heap stays small. */
const FOLD_BYTES = 32 * 1024 * 1024;

/**
 * @typedef {object} DownloadOptions
 * @property {(loaded: number, total: number | null) => void} [onProgress] bytes so far and in all; `total`
 *   is null when the server does not tell. Called for every chunk.
 */

/**
 * @param {string} url absolute
 * @param {DownloadOptions} [options]
 * @returns {Promise<Blob>}
 * @throws {HeadraceError} download_failed (no answer, an HTTP error, a cut connection), model_truncated,
 *   model_invalid (recognised from the first bytes, before the rest is fetched)
 */
export async function download(url, options = {}) {
  const name = nameInMessages(url);
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw HeadraceError.from(error, "download_failed", `${name} could not be reached`);
  }
  if (!response.ok) {
    await response.body?.cancel();
    const status = `${response.status} ${response.statusText}`.trim();
    throw new HeadraceError(
      "download_failed",
      `${name} could not be downloaded: the server answered ${status}`,
      {
        detail: { url: name, status: response.status },
      },
    );
  }
  return readModel(response, name, options);
}

/**
 * Reads a response's body, checking its first bytes first and its length at the end.
 * @param {Response} response
 * @param {string} name how messages call the file
 * @param {DownloadOptions} [options]
 * @returns {Promise<Blob>}
 */
export async function readModel(response, name, { onProgress } = {}) {
  const total = announcedBytes(response.headers);
  const reader = (response.body ?? new Blob().stream()).getReader();
  const parts = new BlobParts();
  try {
    for (let checked = false; ;) {
      const { done, value } = await reader.read().catch((error) => {
        throw HeadraceError.from(error, "download_failed", `${name} broke off after ${parts.bytes} bytes`);
      });
      if (value) parts.add(value);
      if (!checked && (done || parts.bytes >= SNIFF_BYTES)) {
        requireGguf(new Uint8Array(await parts.blob().slice(0, SNIFF_BYTES).arrayBuffer()), name);
        checked = true;
      }
      if (done) break;
      // A compressed transfer may hide its encoding from scripts; its length then proves too small.
      onProgress?.(parts.bytes, total !== null && parts.bytes <= total ? total : null);
    }
  } catch (error) {
    await reader.cancel().catch(() => {});
    throw error;
  }
  if (total !== null && parts.bytes < total) {
    throw new HeadraceError("model_truncated", `${name} ended after ${parts.bytes} of ${total} bytes`, {
      detail: { url: name, loaded: parts.bytes, total },
    });
  }
  return parts.blob();
}

/** Collects chunks without holding more than FOLD_BYTES of them in the JavaScript heap. */
class BlobParts {
  /** @type {Blob[]} */ #folded = [];
  /** @type {Uint8Array<ArrayBuffer>[]} */ #loose = [];
  #looseBytes = 0;
  bytes = 0;

  /** @param {Uint8Array<ArrayBuffer>} chunk */
  add(chunk) {
    this.#loose.push(chunk);
    this.#looseBytes += chunk.length;
    this.bytes += chunk.length;
    if (this.#looseBytes >= FOLD_BYTES) this.#fold();
  }

  blob() {
    this.#fold();
    return new Blob(this.#folded);
  }

  #fold() {
    this.#folded.push(new Blob(this.#loose));
    this.#loose = [];
    this.#looseBytes = 0;
  }
}

/**
 * @param {Headers} headers
 * @returns {number | null}
 */
function announcedBytes(headers) {
  const length = headers.get("content-length");
  const encoding = headers.get("content-encoding") ?? "identity";
  return length !== null && encoding === "identity" && /^\d+$/.test(length) ? Number(length) : null;
}

/**
 * A URL without what may be secret in it: user, password, query and fragment.
 * @param {string} url
 */
function nameInMessages(url) {
  const { protocol, origin, pathname } = new URL(url);
  return protocol.startsWith("http") ? `${origin}${pathname}` : `the model behind the ${protocol} URL`;
}
