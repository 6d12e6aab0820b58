// A server on this machine that has models: ranges, ETags, and a count of what it was asked for.
//
// Counterpart: tests/fault_server.py, which does everything wrong that a server can; this one is
// well-behaved.

import { createHash } from "node:crypto";
import { createServer } from "node:http";

/**
 * @typedef {object} ModelServer
 * @property {string} base without a slash at the end
 * @property {Map<string, Uint8Array>} files by path
 * @property {{method: string, path: string, headers: import("node:http").IncomingHttpHeaders, bytes:
 *   number}[]} requests
 * @property {(path: string) => number} bytesOf sent of a path so far
 * @property {{holdAfter: number | null, release: () => void}} gate
 * @property {() => void} close
 */

/**
 * @param {Record<string, Uint8Array>} files
 * @param {{slowBytesPerTick?: number}} [options] how many bytes go out each five milliseconds; default all at
 *   once
 * @returns {Promise<ModelServer>}
 */
export async function serveModels(files, { slowBytesPerTick } = {}) {
  /** @type {any} */
  const self = { files: new Map(Object.entries(files)), requests: [] };
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? "", "http://x").pathname;
    const entry = { method: request.method ?? "", path, headers: request.headers, bytes: 0 };
    self.requests.push(entry);
    const body = self.files.get(path);
    if (!body) return response.writeHead(404).end("not here");
    const etag = `"${createHash("sha1").update(body).digest("hex")}"`;
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    const isCurrent = [undefined, etag].includes(/** @type {any} */ (request.headers["if-range"]));
    const [start, end] =
      range && isCurrent
        ? [Number(range[1]), Math.min(Number(range[2] || Infinity) + 1, body.length)]
        : [0, body.length];
    if (start >= body.length)
      return response.writeHead(416, { "content-range": `bytes */${body.length}` }).end();
    const part = body.subarray(start, end);
    const whole = !range || !isCurrent;
    response.writeHead(whole ? 200 : 206, {
      etag,
      "accept-ranges": "bytes",
      "content-length": part.length,
      ...(!whole && { "content-range": `bytes ${start}-${end - 1}/${body.length}` }),
    });
    if (request.method === "HEAD") return response.end();
    let at = 0;
    const send = () => {
      if (response.destroyed) return;
      const next = Math.min(part.length, at + (slowBytesPerTick ?? part.length));
      response.write(part.subarray(at, next));
      entry.bytes += next - at;
      at = next;
      if (at === part.length) response.end();
      else setTimeout(send, 5);
    };
    send();
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(null)));
  self.base = `http://127.0.0.1:${/** @type {any} */ (server.address()).port}`;
  self.bytesOf = (/** @type {string} */ path) =>
    self.requests.filter((one) => one.path === path).reduce((sum, { bytes }) => sum + bytes, 0);
  self.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return self;
}
