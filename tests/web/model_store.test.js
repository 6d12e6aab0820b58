// The model store on the storage in memory and a real server: what is fetched, kept, found again and deleted.
//
// Counterpart: tests/browser/test_models.py, the same in a page and on disk. How single files are downloaded
// is in download.test.js.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { afterEach, test } from "node:test";

import { lockIsHeld } from "../../web/models/locks.js";
import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { ModelStore } from "../../web/models/model_store.js";
import { contentName, lockNames, manifestName } from "../../web/models/names.js";
import { resolveRemote } from "../../web/models/sources.js";
import { makeGguf, makeShards } from "./make_gguf.js";
import { serveModels } from "./model_server.js";
import { readBlob } from "./read_blob.js";

const MIB = 2 ** 20;

/** @type {import("./model_server.js").ModelServer[]} */
const servers = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** @param {Record<string, Uint8Array>} files @param {object} [options] */
async function serve(files, options) {
  const server = await serveModels(files, options);
  servers.push(server);
  return server;
}

/** @param {object} [options] of the store @param {object} [quota] what estimate() tells */
function makeStore(options = {}, quota) {
  const storage = createMemoryStorage({ readBlob });
  if (quota) storage.estimate = async () => /** @type {any} */ (quota);
  return { storage, store: new ModelStore(storage, options) };
}

const sha256 = (/** @type {Uint8Array} */ bytes) => createHash("sha256").update(bytes).digest("hex");

/** @param {import("../../web/models/types.js").Storage} storage */
async function names(storage) {
  return (await storage.list()).map(({ name }) => name);
}

/** All bytes of an open model. @param {{files: import("../../web/models/types.js").ReadableFile[]}} open */
function bytesOf({ files }) {
  return files.map((file) => {
    const bytes = new Uint8Array(file.size);
    assert.equal(file.read(bytes, 0), file.size);
    return Buffer.from(bytes);
  });
}

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

// --- Completion, step by step -----------------------------------------------------------------------------

/**
 * A storage that dies before its n-th change, and stays dead.
 * @param {import("../../web/models/types.js").Storage} storage
 * @param {number} steps
 */
function dying(storage, steps) {
  let dead = false;
  const step = () => {
    dead ||= steps-- <= 0;
    if (dead) throw new Error("crash");
  };
  return {
    died: () => dead,
    storage: /** @type {typeof storage} */ ({
      kind: storage.kind,
      list: () => storage.list(),
      openRead: (name) => storage.openRead(name),
      openWrite: (name) => (step(), storage.openWrite(name)),
      readText: (name) => storage.readText(name),
      writeText: (name, text) => (step(), storage.writeText(name, text)),
      rename: (from, to) => (step(), storage.rename(from, to)),
      remove: (name) => (step(), storage.remove(name)),
      blob: (name) => storage.blob(name),
      estimate: () => storage.estimate(),
    }),
  };
}

for (const shards of [1, 3]) {
  test(`a crash before any step of ${shards} file(s) costs no second download`, async () => {
    const bodies =
      shards === 1 ? [makeGguf({ tensors: [1.5 * MIB] })] : makeShards(shards, { bytes: 1.5 * MIB });
    const paths = bodies.map((_, i) => `/m-0000${i + 1}-of-0000${shards}.gguf`);
    const server = await serve(Object.fromEntries(bodies.map((body, i) => [paths[i], body])));
    const remote = await resolveRemote(
      shards === 1 ? server.base + paths[0] : paths.map((path) => server.base + path),
    );
    let crashes = 0;
    for (let steps = 0; ; steps++) {
      const storage = createMemoryStorage({ readBlob });
      const mortal = dying(storage, steps);
      /** Which files had come whole. @type {Set<string>} */
      const whole = new Set();
      const outcome = await new ModelStore(mortal.storage, { settings: { backoffMs: 1 } })
        .obtain(remote)
        .catch((error) => error);
      for (const { name } of await storage.list()) {
        const text = /^partial-[0-9a-f]{64}-done\.json$/.test(name) ? await storage.readText(name) : null;
        if (text !== null) whole.add(JSON.parse(text).part.sha256);
        if (/^[0-9a-f]{64}\.gguf$/.test(name)) whole.add(name.slice(0, 64));
      }
      if (!mortal.died()) {
        assert.equal(outcome.version, 1);
        break;
      }
      crashes += 1;
      assert.match(String(outcome), /crash/);
      const before = bodies.map((_, i) => server.bytesOf(paths[i]));
      const store = new ModelStore(storage);
      // Whatever a list repairs meanwhile must not be in the way.
      if (steps % 2 === 1) await store.list();
      const manifest = await store.obtain(remote);
      assert.deepEqual(
        manifest.parts.map((part) => part.sha256),
        bodies.map(sha256),
      );
      assert.deepEqual(
        manifest.sources.map(({ key }) => key),
        [remote.key],
      );
      for (const [place, body] of bodies.entries()) {
        const fetched = server.bytesOf(paths[place]) - before[place];
        if (whole.has(sha256(body)))
          assert.ok(fetched <= MIB + 16 * 16 * 1024, `step ${steps}: ${fetched} of ${paths[place]}`);
      }
      const left = bodies
        .map((body) => contentName(sha256(body)))
        .concat(manifestName(manifest.id))
        .sort();
      assert.deepEqual(await names(storage), left, `step ${steps} leaves nothing else`);
      assert.deepEqual((await store.verify(manifest.id)).ok, true);
    }
    assert.ok(crashes >= 5 * shards, `${crashes} crashes`);
  });
}

// --- Room ------------------------------------------------------------------------------------------------

test("no room: told before anything is written, with what could go (case D6)", async () => {
  const model = makeGguf({ tensors: [3 * MIB] });
  const server = await serve({ "/m.gguf": model });
  const { store, storage } = makeStore({}, { usedBytes: 90 * MIB, quotaBytes: 91 * MIB });
  const small = await store.importFiles([
    { blob: new Blob([makeGguf({ tensors: [64] })]), name: "small.gguf" },
  ]);
  await assert.rejects(
    store.obtain(await resolveRemote(`${server.base}/m.gguf`)),
    (/** @type {any} */ error) => {
      assert.equal(error.code, "storage_full");
      assert.deepEqual(error.detail, {
        neededBytes: model.length,
        availableBytes: MIB,
        missingBytes: model.length - MIB,
        evictable: [{ id: small.id, name: "small", size: small.size }],
      });
      return true;
    },
  );
  assert.ok(server.bytesOf("/m.gguf") <= MIB);
  assert.equal((await storage.list()).length, 2);
});

/** Three models of a megabyte, the first one used longest ago. @param {object} options */
async function filled(options) {
  const { store, storage } = makeStore(options);
  const ids = [];
  for (const seed of [1, 2, 3]) {
    const model = makeGguf({ tensors: [MIB], seed });
    ids.push((await store.importFiles([{ blob: new Blob([model]), name: `m${seed}.gguf` }])).id);
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
  return { store, storage, ids };
}

/** @param {ModelStore} store */
const ids = async (store) => (await store.list()).map(({ id }) => id);

test("within a limit the least recently used one goes, and no other", async () => {
  const server = await serve({ "/m.gguf": makeGguf({ tensors: [MIB], seed: 9 }) });
  const { store, ids: stored } = await filled({ limitBytes: 3.5 * MIB });
  (await store.open(stored[0])).release();
  const { id } = await store.obtain(await resolveRemote(`${server.base}/m.gguf`));
  assert.deepEqual((await ids(store)).sort(), [stored[0], stored[2], id].sort());
});

test("a model does not make room for another one of which it has a part already", async () => {
  const shards = makeShards(2, { bytes: MIB });
  const others = makeShards(2, { bytes: MIB, seed: 70 });
  const server = await serve({ "/a": shards[0], "/b": others[1] });
  const { store, ids: stored } = await filled({ limitBytes: 5.5 * MIB });
  const set = await store.importFiles(shards.map((shard, i) => ({ blob: new Blob([shard]), name: `s${i}` })));
  for (const id of stored) (await store.open(id)).release();
  const mixed = await store.obtain(await resolveRemote([`${server.base}/a`, `${server.base}/b`]));
  assert.deepEqual((await ids(store)).sort(), [stored[1], stored[2], set.id, mixed.id].sort());
  assert.equal((await store.verify(mixed.id)).ok, true);
});

test("models in use, pinned or forbidden to go stay; then there is no room", async () => {
  const server = await serve({ "/m.gguf": makeGguf({ tensors: [2 * MIB], seed: 9 }) });
  const { store, ids: stored } = await filled({ limitBytes: 3.5 * MIB });
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  await assert.rejects(store.obtain(remote, { evict: false }), { code: "storage_full" });
  const open = await store.open(stored[0]);
  await store.pin(stored[1]);
  await assert.rejects(store.obtain(remote), (/** @type {any} */ error) => {
    assert.deepEqual(
      error.detail.evictable.map((/** @type {any} */ one) => one.id),
      [stored[2]],
    );
    return error.code === "storage_full";
  });
  assert.equal((await ids(store)).length, 3, "nothing was deleted in vain");
  open.release();
  await store.obtain(remote);
  assert.equal((await ids(store)).includes(stored[1]), true);
});

test("with consent, what abandoned downloads have left goes first", async () => {
  const server = await serve({ "/m.gguf": makeGguf({ tensors: [MIB], seed: 9 }) });
  const { store, storage, ids: stored } = await filled({ limitBytes: 4.6 * MIB });
  const left = await storage.openWrite(`partial-${"a".repeat(64)}-1.gguf`);
  left.write(new Uint8Array(MIB), 0);
  left.close();
  await store.obtain(await resolveRemote(`${server.base}/m.gguf`));
  assert.deepEqual((await ids(store)).filter((id) => stored.includes(id)).length, 3);
  assert.deepEqual(
    (await names(storage)).filter((name) => name.startsWith("partial-")),
    [],
  );
});

test("a write that finds no room leaves nothing behind (case D6)", async () => {
  const server = await serve({ "/m.gguf": makeGguf({ tensors: [3 * MIB] }) });
  const { store, storage } = makeStore();
  const { openWrite } = storage;
  storage.openWrite = async (name) => {
    const file = await openWrite.call(storage, name);
    const { HeadraceError } = await import("../../web/errors.js");
    file.write = () => {
      throw new HeadraceError("storage_full", "the browser has no room");
    };
    return file;
  };
  await assert.rejects(
    store.obtain(await resolveRemote(`${server.base}/m.gguf`)),
    (/** @type {any} */ error) => {
      assert.equal(error.code, "storage_full");
      assert.deepEqual(Object.keys(error.detail), [
        "neededBytes",
        "availableBytes",
        "missingBytes",
        "evictable",
      ]);
      assert.match(error.message, /"memory"/);
      return true;
    },
  );
  assert.deepEqual(await names(storage), []);
});

// --- Deleting, verifying, importing ------------------------------------------------------------------------

test("deletion waits for readers, or says that there are some (case D8)", async () => {
  const { store, storage } = makeStore();
  const { id } = await store.importFiles([{ blob: new Blob([makeGguf()]), name: "m.gguf" }]);
  const open = await store.open(id);
  assert.equal((await store.list())[0].inUse, true);
  await assert.rejects(store.delete(id, { wait: false }), { code: "model_in_use", detail: { id } });
  const abort = new AbortController();
  const waiting = store.delete(id, { signal: abort.signal });
  abort.abort();
  await assert.rejects(waiting, { code: "cancelled" });

  let deleted = false;
  const deletion = store.delete(id).then(() => (deleted = true));
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(deleted, false);
  assert.deepEqual(bytesOf(open).length, 1);
  open.release();
  await deletion;
  assert.deepEqual(await names(storage), []);
  await assert.rejects(store.open(id), { code: "model_not_found" });
  assert.equal(await lockIsHeld(lockNames(storage).use(id)), false);
});

test("content that another model has too stays", async () => {
  const shards = makeShards(2);
  const { store } = makeStore();
  const set = (/** @type {Uint8Array[]} */ files) =>
    store.importFiles(
      files.map((file, i) => ({ blob: new Blob([/** @type {any} */ (file)]), name: `s${i}` })),
    );
  const other = makeShards(2, { seed: 50 });
  const [one, two] = [await set(shards), await set([shards[0], other[1]])];
  await store.delete(one.id);
  assert.equal((await store.verify(two.id)).ok, true);
});

test("a projector goes with the last model that has it", async () => {
  const { store } = makeStore();
  const [a, b, projector] = await Promise.all(
    [1, 2, 3].map((seed) => store.importFiles([{ blob: new Blob([makeGguf({ seed })]), name: `m${seed}` }])),
  );
  await store.link(a.id, projector.id);
  await store.link(b.id, projector.id);
  await store.delete(a.id);
  assert.equal((await store.find(projector.id))?.id, projector.id);
  await store.delete(b.id);
  assert.deepEqual(await store.list(), []);
});

test("a damaged file is named, not kept, and fetched anew", async () => {
  const shards = makeShards(3);
  const paths = [1, 2, 3].map((n) => `/m-0000${n}-of-00003.gguf`);
  const server = await serve(Object.fromEntries(paths.map((path, i) => [path, shards[i]])));
  const { store, storage } = makeStore();
  const remote = await resolveRemote(server.base + paths[0]);
  const { id } = await store.obtain(remote);
  const damaged = contentName(sha256(shards[1]));
  const file = await storage.openWrite(damaged);
  file.write(new Uint8Array([1]), file.size - 1);
  file.close();
  /** @type {any[]} */
  const progress = [];
  assert.deepEqual(await store.verify(id, { onProgress: (one) => progress.push(one) }), {
    ok: false,
    damaged: [damaged],
  });
  assert.deepEqual([progress.at(-1).phase, progress.at(-1).loaded], ["verify", progress.at(-1).total]);
  assert.deepEqual(await store.verify(id), { ok: false, damaged: [damaged] });
  assert.deepEqual(await ids(store), [id], "it stays listed");
  await assert.rejects(store.open(id), { code: "model_not_found", detail: { id, damaged: [damaged] } });

  const before = paths.map((path) => server.bytesOf(path));
  assert.equal((await store.obtain(remote)).id, id);
  assert.ok(server.bytesOf(paths[1]) > before[1]);
  assert.deepEqual(await store.verify(id), { ok: true, damaged: [] });
});

test("a file of another size is fetched anew", async () => {
  const model = makeGguf({ tensors: [MIB] });
  const server = await serve({ "/m.gguf": model });
  const { store, storage } = makeStore();
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  const { id } = await store.obtain(remote);
  const file = await storage.openWrite(contentName(sha256(model)));
  file.truncate(1000);
  file.close();
  assert.equal((await store.obtain(remote)).id, id);
  assert.deepEqual(await store.verify(id), { ok: true, damaged: [] });
});

test("local files: one, and shards in the order 3, 1, 2; twice is once (case F10)", async () => {
  const shards = makeShards(3);
  const { store } = makeStore();
  const blobs = [2, 0, 1].map((i) => ({ blob: new Blob([shards[i]]), name: "the blob" }));
  const set = await store.importFiles(blobs);
  assert.deepEqual(
    set.parts.map((part) => part.sha256),
    shards.map(sha256),
  );
  assert.equal((await store.importFiles(blobs)).id, set.id);
  const one = await store.importFiles([{ blob: new Blob([makeGguf()]), name: "x/Mine.gguf" }], {
    pinned: true,
  });
  assert.deepEqual([one.name, one.pinned, one.sources], ["Mine", true, []]);
  assert.deepEqual(
    (await store.export(one.id)).map(({ name }) => name),
    ["Mine.gguf"],
  );
  assert.equal((await store.list()).length, 2);
});

test("local files that are no model, or not all of one (cases F7, F11, F12)", async () => {
  const shards = makeShards(3);
  const { store, storage } = makeStore();
  const bring = (/** @type {Uint8Array<ArrayBuffer>[]} */ ...files) =>
    store.importFiles(files.map((file, i) => ({ blob: new Blob([file]), name: `s${i}` })));
  await assert.rejects(bring(new TextEncoder().encode("<!doctype html>")), { code: "model_invalid" });
  await assert.rejects(bring(shards[1]), { code: "invalid_request" });
  await assert.rejects(bring(shards[0], shards[1]), { code: "invalid_request" });
  await assert.rejects(bring(shards[0], shards[1], shards[1]), { code: "invalid_request" });
  await assert.rejects(bring(Buffer.concat(shards)), { code: "model_invalid" });
  await assert.rejects(bring(makeGguf().subarray(0, 40)), { code: "model_truncated" });
  assert.deepEqual(await names(storage), []);
});

test("usage tells the folder, the origin and the limit", async () => {
  const { store } = await filled({ limitBytes: 10 * MIB });
  const usage = await store.usage();
  assert.ok(usage.modelBytes > 3 * MIB && usage.modelBytes < 3.1 * MIB);
  assert.deepEqual([usage.quotaBytes, usage.limitBytes, usage.storage], [null, 10 * MIB, "memory"]);
});

test("a secret of an address or a header is nowhere in the store (case D10)", async () => {
  const server = await serve({ "/m.gguf": makeGguf() });
  const { store, storage } = makeStore();
  const url = `${server.base}/m.gguf?token=SECRET#SECRET`;
  await store.obtain(await resolveRemote(url, { headers: { Authorization: "Bearer SECRET" } }));
  assert.ok(server.requests.every(({ headers }) => headers.authorization === "Bearer SECRET"));
  for (const name of await names(storage)) {
    const text = name + (name.endsWith(".json") ? await storage.readText(name) : "");
    assert.doesNotMatch(text, /SECRET/);
  }
});

// --- Large files, split here -----------------------------------------------------------------------------

/** As for files beyond 2 GiB, but small. */
const SPLIT = { settings: { maxWholeBytes: MIB, shardBytes: MIB } };

/** Eight tensors of half a megabyte. */
const large = () => makeGguf({ tensors: Array.from({ length: 8 }, () => MIB / 2) });

test("a large file is split; its id and its parts are the published file's", async () => {
  const model = large();
  const server = await serve({ "/m.gguf": model });
  const { store } = makeStore(SPLIT);
  const remote = await resolveRemote(`${server.base}/m.gguf`);
  const manifest = await store.obtain(remote);
  assert.equal(manifest.id, `sha256-${sha256(model)}`);
  assert.deepEqual(manifest.parts, [{ sha256: sha256(model), size: model.length }]);
  assert.ok(manifest.files.length >= 4);
  assert.deepEqual((await store.verify(manifest.id)).ok, true);
  const asked = server.requests.length;
  assert.equal((await store.obtain(remote)).id, manifest.id);
  assert.equal(server.requests.length, asked);
  const names = (await store.export(manifest.id)).map(({ name }) => name);
  assert.equal(names[0], `m-00001-of-0000${names.length}.gguf`);
});

for (const listed of [false, true]) {
  test(`its manifest is lost, listed since: ${listed}; no second download (case D2)`, async () => {
    const model = large();
    const server = await serve({ "/m.gguf": model });
    const { store, storage } = makeStore(SPLIT);
    const remote = await resolveRemote(`${server.base}/m.gguf`);
    const manifest = await store.obtain(remote);
    await storage.writeText(manifestName(manifest.id), "damaged");
    if (listed)
      assert.deepEqual(
        (await store.list()).map(({ files }) => files),
        [manifest.files],
      );
    const before = server.bytesOf("/m.gguf");
    const again = await store.obtain(remote);
    assert.deepEqual([again.id, again.parts, again.files], [manifest.id, manifest.parts, manifest.files]);
    assert.ok(server.bytesOf("/m.gguf") - before <= MIB + 16 * 16 * 1024);
    assert.deepEqual(await ids(store), [manifest.id], "and it is there once");
  });
}

test("another large file of the same size is another model", async () => {
  const [model, other] = [large(), large()];
  other.fill(9, other.length - 20);
  const server = await serve({ "/a.gguf": model, "/b.gguf": other });
  const { store } = makeStore(SPLIT);
  await store.obtain(await resolveRemote(`${server.base}/a.gguf`));
  const second = await store.obtain(await resolveRemote(`${server.base}/b.gguf`));
  assert.equal(second.id, `sha256-${sha256(other)}`);
});
