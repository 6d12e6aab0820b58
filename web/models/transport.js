// One request for a published file, and what the head of its response tells.
//
// Counterparts: download.js decides what to ask for and when again; headrace/models/transport.py is the Python
// twin. Writes nothing. Never shows or keeps a URL or a header: they may hold secrets (case D10).

import { HeadraceError } from "../errors.js";

/** @import { RemoteFile } from "./types.js" */

const CONTENT_RANGE = /^bytes (?:(\d+)-(\d+)|\*)\/(\d+|\*)$/;
const LINKED_ETAG = /^"?([0-9a-f]{64})"?$/;
/** Of these, the first that has it: RFC 9530 (`sha-256=:…:`), then RFC 3230 (`sha-256=…`). */
const DIGEST_HEADERS = ["repr-digest", "content-digest", "digest"];
const DIGEST = /(?:^|,)\s*sha-256=:?([A-Za-z0-9+/]{43}=):?\s*(?:,|$)/i;

/** Worth another try. Its message completes "…, because ". */
export class Transient extends Error {
  /**
   * @param {string} reason
   * @param {{status?: number | null, retryAfterMs?: number | null}} [more]
   */
  constructor(reason, { status = null, retryAfterMs = null } = {}) {
    super(reason);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * What the head of a response tells: `start` is the first byte it holds (null: of another range than bytes),
 * `total` the size of the file, null where it is not told. `encoded` is a body that is compressed on its way:
 * what it tells of sizes is not of the file. `sha256` is a hash of the file's content, where a header truly
 * is one. `chunks` ends with Transient when no byte comes for too long or the connection breaks.
 * @typedef {object} Answer
 * @property {number} status
 * @property {number | null} start
 * @property {number | null} total
 * @property {string | null} etag
 * @property {string | null} lastModified
 * @property {boolean} encoded
 * @property {string | null} sha256
 * @property {number | null} retryAfterMs
 * @property {() => AsyncGenerator<Uint8Array, void, void>} chunks
 * @property {() => void} close ends the connection
 */

/**
 * @typedef {object} RequestOptions
 * @property {"GET" | "HEAD"} [method]
 * @property {[number, number | null] | null} [range] first byte, and the one behind the last (null: all on)
 * @property {string | null} [validator] of the version that is wanted
 * @property {AbortSignal} [signal]
 * @property {number} [stallMs] no byte for so long ends the request
 * @property {typeof globalThis.fetch} [fetch]
 */

/**
 * @param {RemoteFile} file
 * @param {RequestOptions} options
 * @returns {Promise<Answer>}
 * @throws {Transient} when there is no answer; invalid_option for headers that cannot be sent
 */
export async function request(file, options) {
  const { method = "GET", range = null, validator = null, signal, stallMs = 30_000 } = options;
  const headers = requestHeaders(file);
  if (range) {
    headers.set("Range", `bytes=${range[0]}-${range[1] === null ? "" : range[1] - 1}`);
    // To another origin it would cost a question first, which may be refused; versions are compared anyway.
    if (validator !== null && isSameOrigin(file.url)) headers.set("If-Range", validator);
  }
  const ending = new AbortController();
  const end = () => ending.abort();
  if (signal?.aborted) end();
  signal?.addEventListener("abort", end);
  let timer = setTimeout(end, stallMs);
  const close = () => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
    end();
  };
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(end, stallMs);
  };
  try {
    const fetch = options.fetch ?? globalThis.fetch;
    // Gigabytes do not belong into the browser's own cache beside the store.
    const response = await fetch(file.url, { method, headers, signal: ending.signal, cache: "no-store" });
    alive();
    return { ...readHead(response, range), chunks: () => readBody(response, ending.signal, alive), close };
  } catch (error) {
    const reason = broken(error, ending.signal);
    close();
    throw reason;
  }
}

/**
 * @param {Response} response
 * @param {AbortSignal} ended
 * @param {() => void} alive
 */
async function* readBody(response, ended, alive) {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      yield value;
    }
  } catch (error) {
    throw broken(error, ended);
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * @param {unknown} error
 * @param {AbortSignal} ended
 */
function broken(error, ended) {
  if (ended.aborted) return new Transient("no byte came any more");
  // Node hides what happened behind "terminated" and "fetch failed".
  const { cause } = /** @type {{cause?: unknown}} */ (error);
  const told = cause instanceof Error && cause.message ? cause : error;
  return new Transient(told instanceof Error ? told.message : String(told));
}

/** @param {RemoteFile} file */
function requestHeaders({ headers }) {
  const checked = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    try {
      checked.set(name, value);
    } catch {
      // The browser's own message would show the value.
      throw new HeadraceError("invalid_option", "a header has characters that none may have", {
        detail: { option: "headers" },
      });
    }
  }
  return checked;
}

/** @param {string} url */
function isSameOrigin(url) {
  return new URL(url).origin === globalThis.location?.origin;
}

/**
 * @param {Response} response
 * @param {[number, number | null] | null} range that was asked for
 * @returns {Omit<Answer, "chunks" | "close">}
 */
function readHead({ status, headers }, range) {
  const encoded = !["", "identity"].includes((headers.get("content-encoding") ?? "").trim().toLowerCase());
  let [start, total] = [/** @type {number | null} */ (0), /** @type {number | null} */ (null)];
  if (status === 206 || status === 416) {
    const text = headers.get("content-range");
    const told = CONTENT_RANGE.exec(text?.trim() ?? "");
    // To other origins the header may be hidden (case D4): then it is what was asked for.
    start = text === null ? (range?.[0] ?? 0) : told?.[1] !== undefined ? Number(told[1]) : null;
    total = told && told[3] !== "*" ? Number(told[3]) : null;
  } else if (!encoded && /^\d+$/.test(headers.get("content-length") ?? "")) {
    total = Number(headers.get("content-length"));
  }
  return {
    status,
    start,
    total,
    etag: headers.get("etag"),
    lastModified: headers.get("last-modified"),
    encoded,
    sha256: contentHash(status, headers, encoded),
    retryAfterMs: retryAfterMs(headers.get("retry-after")),
  };
}

/**
 * @param {number} status
 * @param {Headers} headers
 * @param {boolean} encoded
 * @returns {string | null}
 */
function contentHash(status, headers, encoded) {
  const linked = LINKED_ETAG.exec(headers.get("x-linked-etag")?.trim() ?? "");
  if (linked) return linked[1];
  if (status !== 200 || encoded) return null;
  for (const name of DIGEST_HEADERS) {
    const found = DIGEST.exec(headers.get(name) ?? "");
    if (found) return hexOfBase64(found[1]);
  }
  return null;
}

/** @param {string} text */
function hexOfBase64(text) {
  return [...atob(text)].map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join("");
}

/**
 * @param {string | null} text
 * @returns {number | null}
 */
function retryAfterMs(text) {
  if (text === null) return null;
  if (/^\d+$/.test(text.trim())) return Number(text) * 1000;
  const time = Date.parse(text);
  return Number.isNaN(time) ? null : Math.max(0, time - Date.now());
}
