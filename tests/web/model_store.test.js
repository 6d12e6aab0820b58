// The model store on the storage in memory and a real server: what is fetched, and what is found again.
//
// Counterparts: model_store_keeping.test.js, what becomes of it then; tests/browser/test_models.py, the same in
// a page and on disk. How single files are downloaded is in download.test.js.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ModelStore } from "../../web/models/model_store.js";
import { contentName, manifestName } from "../../web/models/names.js";
import { resolveRemote } from "../../web/models/sources.js";
import { makeGguf, makeShards } from "./make_gguf.js";
import { MIB, bytesOf, makeStore, names, serve, sha256 } from "./store_setup.js";

test("a model is downloaded once, and then used without asking the network", async () => {
  const model = makeGguf({ tensors: [3 * MIB] });
  const server = await serve({ "/m.gguf": model });
  const { store, storage } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf?token=1`);
  /** @type {any[]} */
  const progress = [];
  const manifest = await store.obtain(remote, { onProgress: (one) => progress.push(one) });
  assert.equal(manifest.id, `sha256-${sha256(model)}`);
  assert.deepEqual(
    manifest.sources.map(({ display }) => display),
    [`${server.base}/m.gguf`],
  );
  assert.deepEqual([manifest.license, manifest.architecture, manifest.pinned], ["mit", "llama", false]);
  assert.deepEqual(
    [progress.at(-1).phase, progress.at(-1).loaded, progress.at(-1).total],
    ["download", model.length, model.length],
  );
  assert.deepEqual(await names(storage), [contentName(sha256(model)), manifestName(manifest.id)]);

  const asked = server.requests.length;
  const again = await store.obtain(remote);
  assert.deepEqual(again, manifest);
  const open = await new ModelStore(storage).open(manifest.id);
  assert.deepEqual(bytesOf(open), [Buffer.from(model)]);
  assert.ok(open.manifest.usedAt >= manifest.usedAt);
  open.release();
  assert.equal(server.requests.length, asked);
});

test("opening a model writes down when it was used", async () => {
  const server = await serve({ "/m.gguf": makeGguf() });
  const { store } = makeStore();
  const { id, usedAt } = await store.obtain(await resolveRemote(`${server.base}/m.gguf`));
  await new Promise((resolve) => setTimeout(resolve, 5));
  (await store.open(id)).release();
  assert.ok(Date.parse((await store.list())[0].usedAt) > Date.parse(usedAt));
});

test("two calls at once: one downloads, the other waits and sees how far it is (case D8)", async () => {
  const model = makeGguf({ tensors: [2 * MIB] });
  const server = await serve({ "/m.gguf": model }, { slowBytesPerTick: 64 * 1024 });
  const { store, storage } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  /** @type {any[]} */
  const waited = [];
  const [one, two] = await Promise.all([
    store.obtain(remote),
    new ModelStore(storage).obtain(remote, { onProgress: (progress) => waited.push(progress) }),
  ]);
  assert.deepEqual(one, two);
  assert.ok(server.bytesOf("/m.gguf") < 1.6 * model.length + MIB, String(server.bytesOf("/m.gguf")));
  assert.deepEqual([...new Set(waited.map(({ phase }) => phase))], ["wait"]);
  assert.ok(waited.some(({ loaded, total }) => loaded > 0 && total === model.length));
});

test("who waits can give up; who downloads can give up, and the other takes over (case D8)", async () => {
  const model = makeGguf({ tensors: [2 * MIB] });
  const server = await serve({ "/m.gguf": model }, { slowBytesPerTick: 32 * 1024 });
  const { store, storage } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  const [first, second] = [new AbortController(), new AbortController()];
  const started = new Promise((resolve) => {
    const one = store.obtain(remote, {
      signal: first.signal,
      onProgress: ({ loaded }) => loaded > 0 && resolve(true),
    });
    one.catch(() => {});
    first.signal.addEventListener("abort", () => assert.rejects(one, { code: "cancelled" }));
  });
  await started;
  const gaveUp = new ModelStore(storage).obtain(remote, { signal: second.signal });
  const third = new ModelStore(storage).obtain(remote);
  second.abort();
  await assert.rejects(gaveUp, { code: "cancelled" });
  first.abort();
  assert.equal((await third).id, `sha256-${sha256(model)}`);
});

// --- Sets of shards --------------------------------------------------------------------------------------

test("a set from the name of any shard, in order", async () => {
  const shards = makeShards(3);
  const paths = [1, 2, 3].map((n) => `/m-0000${n}-of-00003.gguf`);
  const server = await serve(Object.fromEntries(paths.map((path, i) => [path, shards[i]])));
  const { store } = makeStore();
  const manifest = await store.obtain(await resolveRemote(server.base + paths[1]));
  assert.deepEqual(
    manifest.parts,
    shards.map((shard) => ({ sha256: sha256(shard), size: shard.length })),
  );
  assert.equal(manifest.name, "m.gguf");
  assert.deepEqual(
    bytesOf(await store.open(manifest.id)),
    shards.map((shard) => Buffer.from(shard)),
  );
  const asked = server.requests.length;
  assert.equal((await store.obtain(await resolveRemote(server.base + paths[2]))).id, manifest.id);
  assert.equal(server.requests.length, asked);
  assert.deepEqual(
    (await store.export(manifest.id)).map(({ name, blob }) => [name, blob.size]),
    [
      ["m-00001-of-00003.gguf", shards[0].length],
      ["m-00002-of-00003.gguf", shards[1].length],
      ["m-00003-of-00003.gguf", shards[2].length],
    ],
  );
});

test("shards without telling names, in the order 3, 1, 2 (case F10)", async () => {
  const shards = makeShards(3);
  const server = await serve({ "/a": shards[2], "/b": shards[0], "/c": shards[1] });
  const { store } = makeStore();
  const urls = ["a", "b", "c"].map((name) => `${server.base}/${name}`);
  const manifest = await store.obtain(await resolveRemote(urls));
  assert.deepEqual(
    manifest.parts.map((part) => part.sha256),
    shards.map(sha256),
  );
  const asked = server.requests.length;
  const other = [urls[1], urls[0], urls[2]];
  assert.equal(
    (await store.obtain(await resolveRemote(other))).id,
    manifest.id,
    "found in another order too",
  );
  assert.equal(server.requests.length, asked);
});

test("one shard is missing on the server: nothing is downloaded (case F14)", async () => {
  const shards = makeShards(3, { bytes: 4 * MIB });
  const paths = [1, 2, 3].map((n) => `/m-0000${n}-of-00003.gguf`);
  const server = await serve({ [paths[0]]: shards[0], [paths[1]]: shards[1] });
  const { store, storage } = makeStore();
  await assert.rejects(
    store.obtain(await resolveRemote(server.base + paths[0])),
    (/** @type {any} */ error) => {
      assert.deepEqual([error.code, error.detail.status], ["download_failed", 404]);
      return true;
    },
  );
  for (const path of paths) assert.ok(server.bytesOf(path) <= MIB, "first bytes only");
  assert.deepEqual(await names(storage), []);
});

test("a shard without a name that tells is refused before the rest is fetched (case F11)", async () => {
  const shard = makeShards(3, { bytes: 4 * MIB })[1];
  const server = await serve({ "/x.gguf": shard });
  const { store } = makeStore();
  await assert.rejects(store.obtain(await resolveRemote(`${server.base}/x.gguf`)), {
    code: "invalid_request",
  });
  assert.ok(server.bytesOf("/x.gguf") <= MIB);
});

// --- What is here already ---------------------------------------------------------------------------------

test("a lost manifest costs no second download (case D2)", async () => {
  const model = makeGguf({ tensors: [5 * MIB] });
  const server = await serve({ "/m.gguf": model });
  const { store, storage } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  const { id } = await store.obtain(remote);
  await storage.writeText(manifestName(id), '{"version": 1, "id"');
  const before = server.bytesOf("/m.gguf");
  const again = await store.obtain(remote);
  assert.deepEqual([again.id, again.sources.length], [id, 1]);
  const fetched = server.bytesOf("/m.gguf") - before;
  assert.ok(fetched <= MIB + 16 * 16 * 1024, `${fetched} bytes to compare`);
});

test("list repairs what has lost its manifest (case D2)", async () => {
  const [model, shards] = [makeGguf({ name: "Named" }), makeShards(3)];
  const { store, storage } = makeStore();
  const blobs = shards.map((shard, i) => ({ blob: new Blob([shard]), name: `s${i}` }));
  const one = await store.importFiles([{ blob: new Blob([model]), name: "x.gguf" }]);
  const set = await store.importFiles(blobs);
  for (const id of [one.id, set.id]) await storage.writeText(manifestName(id), "damaged");
  const models = await store.list();
  assert.deepEqual(
    models.map(({ id, name }) => [id, name]).sort(),
    [
      [one.id, "Named"],
      [set.id, "Tiny"],
    ].sort(),
  );
  assert.deepEqual(
    bytesOf(await store.open(set.id)),
    shards.map((shard) => Buffer.from(shard)),
  );
});

test("a shard of a set that has lost others is no model, and not lost either", async () => {
  const shards = makeShards(2);
  const { store, storage } = makeStore();
  const set = await store.importFiles(shards.map((shard, i) => ({ blob: new Blob([shard]), name: `s${i}` })));
  await storage.remove(manifestName(set.id));
  await storage.remove(contentName(sha256(shards[1])));
  assert.deepEqual(await store.list(), []);
  assert.deepEqual(await names(storage), [contentName(sha256(shards[0]))]);
});

test("a store of a newer version is left as it is", async () => {
  const server = await serve({ "/m.gguf": makeGguf() });
  const { store, storage } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  const { id } = await store.obtain(remote);
  await storage.writeText(manifestName(id), '{"version": 2}');
  const before = await storage.list();
  const calls = [
    store.list(),
    store.obtain(remote),
    store.open(id),
    store.delete(id),
    store.verify(id),
    store.pin(id),
  ];
  for (const call of calls) await assert.rejects(call, { code: "version_mismatch" });
  assert.deepEqual(await storage.list(), before);
});

test("a mirror: what is here is compared, not downloaded, and both addresses are known", async () => {
  const model = makeGguf({ tensors: [5 * MIB] });
  const [one, two] = [await serve({ "/m.gguf": model }), await serve({ "/m.gguf": model })];
  const { store } = makeStore();
  const first = await store.obtain(await resolveRemote(`${one.base}/m.gguf`));
  const second = await store.obtain(await resolveRemote(`${two.base}/m.gguf`));
  assert.equal(second.id, first.id);
  assert.equal(second.sources.length, 2);
  assert.ok(two.bytesOf("/m.gguf") <= MIB + 16 * 16 * 1024);
});

test("other bytes of the same size are another model", async () => {
  const model = makeGguf({ tensors: [5 * MIB] });
  const other = model.slice();
  other.fill(7, other.length - 100);
  const server = await serve({ "/a.gguf": model, "/b.gguf": other });
  const { store } = makeStore();
  const first = await store.obtain(await resolveRemote(`${server.base}/a.gguf`));
  const second = await store.obtain(await resolveRemote(`${server.base}/b.gguf`));
  assert.equal(second.id, `sha256-${sha256(other)}`);
  assert.notEqual(second.id, first.id);
});

test("a hash that the caller knows finds what is here", async () => {
  const model = makeGguf({ tensors: [5 * MIB] });
  const server = await serve({ "/m.gguf": model });
  const { store } = makeStore();
  const { id } = await store.importFiles([{ blob: new Blob([model]), name: "mine.gguf" }]);
  const remote = await resolveRemote(`${server.base}/m.gguf`, { sha256: sha256(model) });
  assert.equal((await store.obtain(remote)).id, id);
  assert.ok(server.bytesOf("/m.gguf") <= MIB);
});

test("refresh: as it was without a download, or the new one under the same address", async () => {
  const [old, fresh] = [makeGguf({ tensors: [3 * MIB] }), makeGguf({ tensors: [3 * MIB], seed: 2 })];
  const server = await serve({ "/m.gguf": old });
  const { store } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  const first = await store.obtain(remote);
  const before = server.bytesOf("/m.gguf");
  assert.deepEqual(await store.obtain(remote, { refresh: true }), first);
  assert.ok(server.bytesOf("/m.gguf") - before <= MIB);

  server.files.set("/m.gguf", fresh);
  assert.equal((await store.obtain(remote)).id, first.id, "without refresh nobody asks");
  const second = await store.obtain(remote, { refresh: true });
  assert.equal(second.id, `sha256-${sha256(fresh)}`);
  assert.equal((await store.obtain(remote)).id, second.id);
  assert.deepEqual((await store.find(first.id))?.sources, []);
});
