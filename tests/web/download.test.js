// Downloads from real servers on this machine that break in every way: the file comes whole, or a typed error.
//
// Counterparts: web/models/download.js and what it is made of; tests/browser/test_downloads.py does the same in
// pages, tests/python/test_models_download.py for the Python twin.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";

import { fetchFile } from "../../web/models/download.js";
import { parseHeader } from "../../web/models/gguf_header.js";
import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { probeFile } from "../../web/models/probe.js";
import { discardPartial } from "../../web/models/partial.js";
import { resolveRemote } from "../../web/models/sources.js";
import { makeGguf } from "./make_gguf.js";
import { readBlob } from "./read_blob.js";

const MODEL = makeGguf({ tensors: [100_000, 60_000, 90_000, 50_000] });
const OTHER = makeGguf({ tensors: [100_000, 60_000, 90_000, 50_016] });
const SECRET = "secret-token-9c1";
const SMALL = { headBytes: 4096, gapBytes: 64_000, journalBytes: 8_000, backoffMs: 1, stallMs: 2000 };

const sha256 = (/** @type {Uint8Array} */ bytes) => createHash("sha256").update(bytes).digest("hex");

/**
 * What a server does to one path: `handle` may answer a request wholly; else it is answered well, cut after
 * `cutAfter(n, start)` bytes of the n-th request's body, if that gives a number.
 * @typedef {{body: Uint8Array, etag?: string, ranges?: boolean, gzip?: boolean, chunked?: boolean,
 *   cutAfter?: (n: number, start: number) => number | null,
 *   handle?: (n: number, request: any, response: any) => boolean, headers?: Record<string, string>}} Behaviour
 */

/** @type {Map<string, Behaviour & {requests: any[], sent: number}>} */
const paths = new Map();
let base = "";
const server = createServer((request, response) => {
  const path = paths.get(request.url ?? "");
  if (!path) return void response.writeHead(404).end("not here");
  const n = path.requests.push({ method: request.method, headers: request.headers });
  if (path.handle?.(n, request, response)) return;
  serveWell(path, n, request, response);
});

/** @param {any} path @param {number} n @param {any} request @param {any} response */
function serveWell(path, n, request, response) {
  const { body, etag = `"${sha256(path.body).slice(0, 8)}"` } = path;
  const asked = path.ranges === false ? null : /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  const start = asked ? Number(asked[1]) : 0;
  const end = asked?.[2] ? Math.min(Number(asked[2]) + 1, body.length) : body.length;
  if (asked && start >= body.length)
    return response.writeHead(416, { "content-range": `bytes */${body.length}` }).end();
  let part = body.subarray(start, end);
  if (path.gzip) part = gzipSync(part);
  response.writeHead(asked ? 206 : 200, {
    etag,
    ...(!path.chunked && { "content-length": part.length }),
    ...(asked && { "content-range": `bytes ${start}-${end - 1}/${body.length}` }),
    ...(path.gzip && { "content-encoding": "gzip" }),
    ...path.headers,
  });
  if (request.method === "HEAD") return response.end();
  const cut = path.cutAfter?.(n, start) ?? null;
  const sent = cut === null ? part : part.subarray(0, cut);
  path.sent += sent.length;
  if (sent.length === part.length) return response.end(part);
  response.flushHeaders();
  if (sent.length === 0) return response.destroy();
  // A moment, so that what was sent is not thrown away with the connection.
  response.write(sent, () => setTimeout(() => response.destroy(), 15));
}

before(async () => {
  await new Promise((listening) => server.listen(0, "127.0.0.1", () => listening(null)));
  base = `http://127.0.0.1:${/** @type {any} */ (server.address()).port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

let published = 0;

/**
 * @param {Behaviour} behaviour
 * @param {{headers?: Record<string, string>, sha256?: string}} [options]
 */
async function publish(behaviour, options = {}) {
  const name = `/m${published++}.gguf`;
  const path = { requests: [], sent: 0, ...behaviour };
  paths.set(name, path);
  const remote = await resolveRemote(base + name, { base, ...options });
  return { path, file: remote.files[0], name };
}

const memory = () => createMemoryStorage({ readBlob });

/** @param {any} storage @param {any} fetched */
async function bytesOf(storage, fetched) {
  const blobs = await Promise.all(fetched.files.map((/** @type {any} */ one) => storage.blob(one.name)));
  return Promise.all(blobs.map(async (blob) => new Uint8Array(await blob.arrayBuffer())));
}

/** @param {any} storage @param {any} fetched @param {Uint8Array} body */
async function requireBody(storage, fetched, body) {
  assert.equal(fetched.part.sha256, sha256(body));
  const [bytes] = await bytesOf(storage, fetched);
  assert.equal(sha256(bytes), sha256(body));
}

/** @param {string} code @param {RegExp} [message] */
const failsWith = (code, message) => (/** @type {any} */ error) => {
  assert.equal(error.code, code, error.stack);
  if (message) assert.match(error.message, message);
  return true;
};

test("a file comes in parallel ranges", async () => {
  const { file, path } = await publish({ body: MODEL });
  const storage = memory();
  /** @type {number[]} */
  const loaded = [];
  const fetched = await fetchFile(file, { storage, ...SMALL, onBytes: (bytes) => loaded.push(bytes) });
  await requireBody(storage, fetched, MODEL);
  assert.ok(path.requests.length > 3);
  assert.equal(path.sent, MODEL.length);
  assert.equal(loaded.at(-1), MODEL.length);
  assert.deepEqual(loaded, [...loaded].sort((a, b) => a - b));
});

test("what a probe has brought is not fetched again", async () => {
  const { file, path } = await publish({ body: MODEL });
  const storage = memory();
  const published = await probeFile(file);
  assert.equal(published.size, MODEL.length);
  await requireBody(storage, await fetchFile(file, { storage, published, ...SMALL }), MODEL);
  assert.equal(path.sent, MODEL.length);
});

test("twenty cuts: it goes on where it was, and nothing comes twice (case D1)", async () => {
  const body = makeGguf({ tensors: [3_000_000] });
  let cuts = 0;
  const { file, path } = await publish({ body, cutAfter: () => (cuts++ < 20 ? 40_001 : null) });
  const storage = memory();
  const fetched = await fetchFile(file, { storage, ...SMALL, gapBytes: 400_000 });
  await requireBody(storage, fetched, body);
  assert.ok(cuts >= 20);
  assert.ok(path.sent <= body.length * 1.02, `${path.sent} of ${body.length}`);
});

test("cancelled, it leaves what has come for the next time; a crash costs no more than a journal (case D1)", async () => {
  const body = makeGguf({ tensors: [3_000_000] });
  let hold = 5;
  const { file, path } = await publish({ body, handle: (n) => n > hold });
  const storage = memory();
  const stop = new AbortController();
  const running = fetchFile(file, { storage, ...SMALL, signal: stop.signal });
  while (path.requests.length <= hold + 1) await new Promise((later) => setTimeout(later, 5));
  stop.abort();
  await assert.rejects(running, failsWith("cancelled"));
  const sent = path.sent;
  hold = Infinity;
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL }), body);
  // What was on its way when it was cancelled is all that may come again.
  assert.ok(path.sent <= body.length + 4 * SMALL.gapBytes, `${path.sent} of ${body.length}`);
  assert.ok(sent > 100_000);
});

test("a partial file that lost bytes is not believed (case D1)", async () => {
  const { file } = await publish({ body: MODEL, handle: (n) => n > 3 });
  const storage = memory();
  await assert.rejects(
    fetchFile(file, { storage, ...SMALL, signal: AbortSignal.timeout(300) }),
    failsWith("cancelled"),
  );
  const partial = await storage.openWrite(`partial-${file.key}-1.gguf`);
  partial.truncate(10);
  partial.close();
  paths.get(new URL(file.url).pathname).handle = undefined;
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL }), MODEL);
});

for (const [label, behaviour] of /** @type {[string, Partial<Behaviour>][]} */ ([
  ["without ranges (case D5)", { ranges: false }],
  ["without a length (case D3)", { ranges: false, chunked: true }],
  ["compressed on its way (case D3)", { ranges: false, gzip: true }],
  ["compressed, with ranges of what is compressed (case D3)", { gzip: true }],
])) {
  test(`a server ${label}`, async () => {
    const { file } = await publish({ body: MODEL, ...behaviour });
    const storage = memory();
    /** @type {Set<number | null>} */
    const totals = new Set();
    const fetched = await fetchFile(file, { storage, ...SMALL, onBytes: (_, total) => totals.add(total) });
    await requireBody(storage, fetched, MODEL);
    for (const total of totals) assert.ok(total === null || total === MODEL.length, String(total));
  });
}

test("a server that forgets ranges in the middle of a resume (case D5)", async () => {
  const { file, path } = await publish({ body: MODEL, handle: (n) => n > 3 });
  const storage = memory();
  const signal = AbortSignal.timeout(300);
  await assert.rejects(fetchFile(file, { storage, ...SMALL, signal }), failsWith("cancelled"));
  path.handle = undefined;
  path.ranges = false;
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL }), MODEL);
});

test("a server that refuses ranges with 416 (case D5)", async () => {
  const { file } = await publish({
    body: MODEL,
    handle: (n, request, response) => {
      if (!request.headers.range || n < 3) return false;
      response.writeHead(416).end();
      return true;
    },
  });
  const storage = memory();
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL }), MODEL);
});

test("a file that has changed begins anew, once (case D5)", async () => {
  const { file, path } = await publish({ body: MODEL, handle: (n) => n > 3 });
  const storage = memory();
  const signal = AbortSignal.timeout(300);
  await assert.rejects(fetchFile(file, { storage, ...SMALL, signal }), failsWith("cancelled"));
  path.handle = undefined;
  path.body = OTHER;
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL }), OTHER);
});

test("a file that changes all the time is given up", async () => {
  const { file } = await publish({
    body: MODEL,
    handle: (n, request, response) => {
      serveWell({ body: MODEL, etag: `"${n}"`, sent: 0 }, n, request, response);
      return true;
    },
  });
  await assert.rejects(fetchFile(file, { storage: memory(), ...SMALL }), failsWith("download_failed", /changes/));
});

for (const status of [401, 403, 404, 410]) {
  test(`status ${status} is final`, async () => {
    const handle = (/** @type {number} */ _, /** @type {any} */ __, /** @type {any} */ response) => {
      response.writeHead(status).end();
      return true;
    };
    const { file, path } = await publish({ body: MODEL, handle });
    await assert.rejects(fetchFile(file, { storage: memory(), ...SMALL }), (/** @type {any} */ error) => {
      assert.deepEqual([error.code, error.detail.status], ["download_failed", status]);
      return true;
    });
    assert.equal(path.requests.length, 1);
    await assert.rejects(probeFile(file), failsWith("download_failed"));
  });
}

test("a server that is busy for a while, and one that stays so", async () => {
  let busy = 3;
  const handle = (/** @type {number} */ _, /** @type {any} */ __, /** @type {any} */ response) => {
    if (busy-- <= 0) return false;
    response.writeHead(503, { "retry-after": "0" }).end();
    return true;
  };
  const { file, path } = await publish({ body: MODEL, handle });
  const storage = memory();
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL }), MODEL);
  busy = Infinity;
  path.requests.length = 0;
  await assert.rejects(fetchFile(file, { storage: memory(), ...SMALL }), failsWith("download_failed", /503/));
  assert.equal(path.requests.length, 8);
});

test("a server that stalls is cut, and asked again", async () => {
  const handle = (/** @type {number} */ n) => n === 2;
  const { file } = await publish({ body: MODEL, handle });
  const storage = memory();
  await requireBody(storage, await fetchFile(file, { storage, ...SMALL, stallMs: 200 }), MODEL);
});

test("the caller's hash, the server's, and neither of them an ETag (case D11)", async () => {
  const right = sha256(MODEL);
  const digest = `sha-256=:${createHash("sha256").update(MODEL).digest("base64")}:`;
  const wrong = "0".repeat(64);
  const good = await publish({ body: MODEL, etag: `"${wrong}"` }, { sha256: right });
  const storage = memory();
  await requireBody(storage, await fetchFile(good.file, { storage, ...SMALL }), MODEL);

  const bad = await publish({ body: MODEL }, { sha256: wrong });
  const kept = memory();
  await assert.rejects(fetchFile(bad.file, { storage: kept, ...SMALL }), failsWith("hash_mismatch"));
  assert.deepEqual(await kept.list(), []);

  const linked = await publish({ body: MODEL, headers: { "x-linked-etag": `"${wrong}"` } });
  await assert.rejects(fetchFile(linked.file, { storage: kept, ...SMALL }), failsWith("hash_mismatch"));
  assert.deepEqual(await kept.list(), []);

  const told = await publish({ body: OTHER, ranges: false, headers: { "repr-digest": digest } });
  await assert.rejects(fetchFile(told.file, { storage: kept, ...SMALL }), failsWith("hash_mismatch"));

  const disagreeing = await publish({ body: MODEL, headers: { "x-linked-etag": wrong } }, { sha256: right });
  await assert.rejects(fetchFile(disagreeing.file, { storage: kept, ...SMALL }), failsWith("hash_mismatch"));
  assert.ok(disagreeing.path.requests.length === 1);
});

test("an error page is recognised before the rest is fetched (case F7)", async () => {
  const page = new TextEncoder().encode("<!doctype html><title>Sign in</title>".padEnd(2_000_000));
  const { file, path } = await publish({ body: page, etag: '"x"' });
  const storage = memory();
  await assert.rejects(fetchFile(file, { storage, ...SMALL }), failsWith("model_invalid", /HTML/));
  await assert.rejects(probeFile(file), failsWith("model_invalid", /HTML/));
  assert.deepEqual(await storage.list(), []);
  assert.equal(path.requests.length, 2);
});

test("a file that ends before its tensors do", async () => {
  const { file } = await publish({ body: MODEL.subarray(0, 200_000) });
  const storage = memory();
  await assert.rejects(fetchFile(file, { storage, ...SMALL }), failsWith("model_truncated"));
  assert.deepEqual(await storage.list(), []);
});

test("a token goes with every request, and nowhere else (case D10)", async () => {
  const { file, path } = await publish({ body: MODEL, handle: (n) => n === 5 }, { headers: { Authorization: SECRET } });
  const storage = memory();
  const signal = AbortSignal.timeout(300);
  await assert.rejects(fetchFile(file, { storage, ...SMALL, signal }), (/** @type {any} */ error) => {
    assert.ok(!`${error.stack}${JSON.stringify(error.toWire())}${error.cause}`.includes(SECRET));
    return true;
  });
  for (const { name } of await storage.list()) {
    const text = Buffer.from(await (await storage.blob(name)).arrayBuffer()).toString("latin1");
    assert.ok(!text.includes(SECRET) && !name.includes(SECRET), name);
  }
  assert.ok(path.requests.length >= 5);
  for (const { headers } of path.requests) assert.equal(headers.authorization, SECRET);
});

test("a large file is split while it comes", async () => {
  const sizes = { maxWholeBytes: 100_000, shardBytes: 120_000 };
  const { file, path } = await publish({ body: MODEL });
  const storage = memory();
  const fetched = await fetchFile(file, { storage, ...SMALL, ...sizes });
  assert.equal(fetched.part.sha256, sha256(MODEL));
  assert.ok(fetched.files.length >= 3, String(fetched.files.length));
  const shards = await bytesOf(storage, fetched);
  for (const [place, shard] of shards.entries()) {
    assert.equal(sha256(shard), fetched.files[place].sha256);
    assert.equal(shard.length, fetched.files[place].size);
    assert.equal(Buffer.from(shard.subarray(0, 4)).toString(), "GGUF");
  }
  assert.equal(path.sent, MODEL.length);
  const data = MODEL.subarray(fetched.header.dataStart);
  const joined = Buffer.concat(shards.map((shard, i) => shard.subarray(shard.length - pieceBytes(fetched, shards, i))));
  assert.equal(sha256(joined), sha256(data));
  await discardPartial(storage, file.key);
  assert.deepEqual(await storage.list(), []);
});

/**
 * How many published bytes a shard ends with: what lies behind its own header.
 * @param {any} fetched @param {Uint8Array[]} shards @param {number} place
 */
function pieceBytes(fetched, shards, place) {
  const published = fetched.part.size - fetched.header.dataStart;
  const own = shards.map((shard) => shard.length - headerBytes(shard));
  assert.equal(own.reduce((sum, bytes) => sum + bytes, 0), published);
  return own[place];
}

/** Where the data of a shard begins: its tensors' first offset is 0. @param {Uint8Array} shard */
function headerBytes(shard) {
  const found = parseHeader(shard, "shard");
  assert.ok(found);
  return found.dataStart;
}

/** @param {number} seed */
function randomness(seed) {
  let state = seed + 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

test("whatever a server does at random, a file is whole or not there", { timeout: 120_000 }, async () => {
  const outcomes = { whole: 0, failed: 0 };
  for (let seed = 0; seed < 100; seed++) {
    const random = randomness(seed * 7919);
    const body = random() < 0.5 ? MODEL : OTHER;
    const split = random() < 0.4 ? { maxWholeBytes: 100_000, shardBytes: 120_000 } : {};
    const trouble = random() * 0.5;
    const { file, path } = await publish({
      body,
      ranges: random() < 0.8,
      cutAfter: () => (random() < trouble ? Math.floor(random() * 60_000) : null),
      handle: (_, __, response) => {
        if (random() > trouble / 3) return false;
        if (random() < 0.5) response.writeHead(random() < 0.5 ? 500 : 429).end();
        else response.destroy();
        return true;
      },
    });
    const storage = memory();
    for (let tries = 0; ; tries++) {
      const stop = new AbortController();
      const timer = random() < 0.3 && tries < 3 ? setTimeout(() => stop.abort(), random() * 40) : undefined;
      const fetched = await fetchFile(file, { storage, ...SMALL, ...split, signal: stop.signal }).catch((error) => {
        assert.ok(["cancelled", "download_failed"].includes(error.code), `seed ${seed}: ${error.stack}`);
        return null;
      });
      clearTimeout(timer);
      if (fetched) {
        assert.equal(fetched.part.sha256, sha256(body), `seed ${seed}`);
        const stored = await bytesOf(storage, fetched);
        for (const [place, bytes] of stored.entries())
          assert.equal(sha256(bytes), fetched.files[place].sha256, `seed ${seed}`);
        outcomes.whole += 1;
        break;
      }
      outcomes.failed += 1;
      if (tries > 3) Object.assign(path, { cutAfter: undefined, handle: undefined });
    }
  }
  assert.equal(outcomes.whole, 100);
  assert.ok(outcomes.failed > 10, JSON.stringify(outcomes));
});
