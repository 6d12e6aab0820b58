// Downloads from a real server on this machine: what it does wrong becomes a typed error.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";

import { download, readModel } from "../../web/models/download.js";

const MODEL = new Uint8Array(300_000).fill(7);
MODEL.set(new TextEncoder().encode("GGUF\x03\0\0\0"));

/** @type {Record<string, (request: any, response: any) => void>} */
const ROUTES = {
  "/model.gguf": (_, response) => {
    response.writeHead(200, { "content-length": MODEL.length });
    response.end(MODEL);
  },
  "/chunked.gguf": (_, response) => {
    response.writeHead(200);
    response.write(MODEL.subarray(0, 10));
    setTimeout(() => response.end(MODEL.subarray(10)), 20);
  },
  "/gzip.gguf": (_, response) => {
    const body = gzipSync(MODEL);
    response.writeHead(200, { "content-encoding": "gzip", "content-length": body.length });
    response.end(body);
  },
  "/page.gguf": (_, response) => {
    response.writeHead(200, { "content-type": "text/html" });
    response.write("<!doctype html><title>Sign in</title>".padEnd(1000));
    // Never ended: whoever waits for the rest waits for ever.
    response.on("close", () => (pageClosed = true));
  },
  "/empty.gguf": (_, response) => response.writeHead(200, { "content-length": 0 }).end(),
  "/cut.gguf": (_, response) => {
    response.writeHead(200, { "content-length": MODEL.length });
    response.write(MODEL.subarray(0, 100_000), () => setTimeout(() => response.destroy(), 20));
  },
  "/cut-chunked.gguf": (_, response) => {
    response.writeHead(200);
    response.write(MODEL.subarray(0, 100_000), () => setTimeout(() => response.destroy(), 20));
  },
};
let pageClosed = false;
let base = "";
const server = createServer((request, response) => {
  const route = ROUTES[new URL(request.url ?? "", "http://x").pathname];
  if (route) route(request, response);
  else response.writeHead(404).end("not here");
});

before(async () => {
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(null)));
  base = `http://127.0.0.1:${/** @type {any} */ (server.address()).port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

/** @param {string} code @param {RegExp} message @param {object} [detail] */
const failsWith = (code, message, detail) => (/** @type {any} */ error) => {
  assert.equal(error.code, code, error.message);
  assert.match(error.message, message);
  if (detail) assert.deepEqual(error.detail, detail);
  return true;
};

for (const path of ["/model.gguf", "/chunked.gguf", "/gzip.gguf"]) {
  test(`whole file: ${path}`, async () => {
    /** @type {[number, number | null][]} */
    const progress = [];
    const blob = await download(base + path, { onProgress: (...figures) => progress.push(figures) });
    assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), MODEL);
    assert.deepEqual(progress.at(-1), [MODEL.length, path === "/model.gguf" ? MODEL.length : null]);
    for (const [index, [loaded]] of progress.entries())
      assert.ok(index === 0 || loaded > progress[index - 1][0]);
  });
}

test("an HTTP error keeps its status", async () => {
  const url = `${base}/none.gguf`;
  await assert.rejects(
    download(url),
    failsWith("download_failed", /the server answered 404 Not Found/, { url, status: 404 }),
  );
});

test("no server", async () => {
  await assert.rejects(
    download("http://127.0.0.1:1/model.gguf"),
    failsWith("download_failed", /could not be reached/),
  );
});

test("a page in place of a model is recognised before the rest is fetched", async () => {
  await assert.rejects(download(`${base}/page.gguf`), failsWith("model_invalid", /HTML page/));
  await sleep(50);
  assert.ok(pageClosed, "the connection is given up");
});

test("an empty answer", async () => {
  await assert.rejects(download(`${base}/empty.gguf`), failsWith("model_invalid", /is empty/));
});

for (const path of ["/cut.gguf", "/cut-chunked.gguf"]) {
  test(`cut connection: ${path}`, async () => {
    await assert.rejects(download(base + path), failsWith("download_failed", /broke off after 100000 bytes/));
  });
}

test("a body shorter than announced", async () => {
  const response = new Response(MODEL.subarray(0, 5000), { headers: { "content-length": "300000" } });
  await assert.rejects(
    readModel(response, "x.gguf"),
    failsWith("model_truncated", /x\.gguf ended after 5000 of 300000 bytes/, {
      url: "x.gguf",
      loaded: 5000,
      total: 300000,
    }),
  );
});

test("a length that proves too small is not believed", async () => {
  /** @type {[number, number | null][]} */
  const progress = [];
  const response = new Response(MODEL, { headers: { "content-length": "5000" } });
  const blob = await readModel(response, "x.gguf", { onProgress: (...figures) => progress.push(figures) });
  assert.equal(blob.size, MODEL.length);
  assert.deepEqual(progress.at(-1), [MODEL.length, null]);
});

test("secrets in an address stay out of messages and details", async () => {
  const { port } = new URL(base);
  const url = `http://127.0.0.1:${port}/none.gguf?token=SECRET#SECRET`;
  await assert.rejects(download(url), (/** @type {any} */ error) => {
    assert.doesNotMatch(error.message + JSON.stringify(error.detail), /SECRET/);
    return true;
  });
});
