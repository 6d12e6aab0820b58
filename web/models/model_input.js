// Checks what an application names a model by, in the page, before anything is started.
//
// Counterpart: sources.js resolves addresses further, in the worker. Asks no network and opens no file.

import { HeadraceError } from "../errors.js";
import { isModelId } from "./names.js";

/** @import { ModelInput, RemoteInput } from "./store_protocol.js" */
/** @import { Manifest } from "./types.js" */

/**
 * An address: a URL (relative to the page), or "hf:owner/repo/file.gguf".
 * @typedef {string | URL} ModelAddress
 */

/**
 * A model: its address, a local file, a stored model or its id ("sha256-…"), or the shards of one, in any
 * order.
 * @typedef {ModelAddress | File | Blob | Pick<Manifest, "id"> | ModelAddress[] | Blob[]} ModelLike
 */

/** @typedef {{headers?: Record<string, string>, sha256?: string | (string | null)[]}} RemoteOptions */

/**
 * @param {string} option how a message calls it
 * @param {ModelLike} model
 * @param {RemoteOptions} [options] for an address
 * @returns {ModelInput}
 * @throws {HeadraceError} invalid_option
 */
export function modelInput(option, model, options = {}) {
  const list = Array.isArray(model) ? model : [model];
  if (list.length > 0 && list.every((one) => one instanceof Blob)) {
    refuseRemote(option, options);
    return {
      kind: "files",
      files: list.map((blob, place) => ({ blob, name: blobName(blob, place, list.length) })),
    };
  }
  if (list.length > 0 && list.every(isAddress)) {
    const [first] = list;
    if (list.length > 1 || !isModelId(String(first))) return remoteInput(option, list, options);
  }
  const id = typeof model === "string" ? model : /** @type {Partial<Manifest> | null} */ (model)?.id;
  if (Array.isArray(model) || typeof id !== "string" || !isModelId(id)) {
    const kinds = "a URL, a File or a Blob (or a list of such), or a stored model or its id";
    throw invalid(option, `the option "${option}" must be ${kinds}`);
  }
  refuseRemote(option, options);
  return { kind: "stored", id };
}

/**
 * @param {string} option
 * @param {ModelAddress | ModelAddress[]} source
 * @param {RemoteOptions} options
 * @returns {RemoteInput}
 * @throws {HeadraceError} invalid_option
 */
export function remoteInput(option, source, { headers = {}, sha256 }) {
  const list = Array.isArray(source) ? source : [source];
  if (list.length === 0 || !list.every(isAddress))
    throw invalid(option, `the option "${option}" must be a URL, or a list of URLs`);
  requireHeaders(headers);
  return {
    kind: "remote",
    addresses: list.map((one) => absolute(option, one)),
    headers: { ...headers },
    sha256: requireHashes(sha256),
  };
}

/**
 * @param {string} option
 * @param {string} message
 */
export function invalid(option, message) {
  return new HeadraceError("invalid_option", message, { detail: { option } });
}

/**
 * @param {string} option
 * @param {string | URL} address relative to the page
 * @returns {string}
 */
export function absolute(option, address) {
  if (typeof address === "string" && address.startsWith("hf:")) return address;
  try {
    return new URL(address, globalThis.document?.baseURI ?? globalThis.location.href).href;
  } catch {
    throw invalid(option, `the option "${option}" is not a URL: ${address}`);
  }
}

/** @param {unknown} value @returns {value is ModelAddress} */
function isAddress(value) {
  return (typeof value === "string" && value !== "") || value instanceof URL;
}

/**
 * @param {Blob} blob
 * @param {number} place
 * @param {number} count
 */
function blobName(blob, place, count) {
  if (blob instanceof File) return blob.name;
  return count === 1 ? "the blob" : `blob ${place + 1}`;
}

/**
 * @param {string} option
 * @param {RemoteOptions} options
 */
function refuseRemote(option, { headers, sha256 }) {
  for (const [name, value] of Object.entries({ headers, sha256 })) {
    if (value !== undefined)
      throw invalid(name, `the option "${name}" is of use only when "${option}" is a URL`);
  }
}

/** @param {unknown} headers */
function requireHeaders(headers) {
  const isPlain =
    typeof headers === "object" &&
    headers !== null &&
    !Array.isArray(headers) &&
    !(headers instanceof Headers) &&
    Object.values(headers).every((value) => typeof value === "string");
  if (!isPlain) throw invalid("headers", 'the option "headers" must be an object of texts');
  try {
    new Headers(/** @type {Record<string, string>} */ (headers));
  } catch {
    // The browser's own message would show the value, which may be a token.
    throw invalid("headers", 'the option "headers" has a name or a value that no header can have');
  }
}

/**
 * @param {unknown} sha256
 * @returns {(string | null)[] | null}
 */
function requireHashes(sha256) {
  if (sha256 === undefined) return null;
  const list = Array.isArray(sha256) ? sha256 : [sha256];
  const isHash = (/** @type {unknown} */ one) => typeof one === "string" && /^[0-9a-f]{64}$/i.test(one);
  if (list.length > 0 && list.every((one) => one === null || isHash(one))) return list;
  throw invalid(
    "sha256",
    'the option "sha256" must be 64 hexadecimal digits, or a list with one for each file',
  );
}
