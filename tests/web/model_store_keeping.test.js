// The model store on the storage in memory: a crash between any two steps, room, deleting, importing, splitting.
//
// Counterparts: model_store.test.js, what is fetched and found again; tests/browser/test_models.py, on disk.

import assert from "node:assert/strict";
import { test } from "node:test";

import { lockIsHeld } from "../../web/models/locks.js";
import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { ModelStore } from "../../web/models/model_store.js";
import { contentName, lockNames, manifestName } from "../../web/models/names.js";
import { resolveRemote } from "../../web/models/sources.js";
import { makeGguf, makeShards } from "./make_gguf.js";
import { readBlob } from "./read_blob.js";
import { MIB, bytesOf, makeStore, names, serve, sha256 } from "./store_setup.js";

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
