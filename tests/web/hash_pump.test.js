// The hash that follows a download: it ends when all is hashed or the download is, whatever happens meanwhile.
//
// Counterpart: web/models/hash_pump.js, here over the real Partial. Whether hashes are right is in
// download.test.js.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HashPump } from "../../web/models/hash_pump.js";
import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { Partial } from "../../web/models/partial.js";
import { makeGguf } from "./make_gguf.js";
import { readBlob } from "./read_blob.js";
import { sha256 } from "./store_setup.js";

const MODEL = makeGguf({ tensors: [100_000] });
const FILE = { key: "0".repeat(64), display: "http://x/m.gguf", name: "m.gguf" };

/** A pump at rest over a file of unknown size, all of which has come, while its journal is being written. */
async function whileSaving() {
  const storage = createMemoryStorage({ readBlob });
  /** @type {() => void} */
  let release = () => {};
  const gate = new Promise((resolve) => (release = () => resolve(undefined)));
  const writeText = storage.writeText.bind(storage);
  storage.writeText = async (name, text) => {
    await gate;
    return writeText(name, text);
  };
  const partial = await Partial.open(storage, FILE, {});
  await partial.setSize(null);
  partial.write(MODEL, 0);
  const pump = new HashPump(partial);
  const ending = new AbortController();
  const running = pump.run(ending.signal);
  running.catch(() => {});
  while (partial.hashed < MODEL.length) await new Promise((later) => setTimeout(later, 1));
  const saving = partial.save();
  pump.wake();
  // The pump has looked, and waits for the journal.
  await new Promise((later) => setTimeout(later, 10));
  const finishSaving = async () => {
    release();
    await saving;
  };
  return { partial, pump, ending, running, finishSaving };
}

test("a download that ends while its journal is written ends the hash", { timeout: 5000 }, async () => {
  const { partial, pump, running, finishSaving } = await whileSaving();
  partial.journal.size = MODEL.length;
  pump.wake();
  await finishSaving();
  await running;
  assert.equal((await partial.finish()).part.sha256, sha256(MODEL));
  await partial.settle();
});

test("a download that fails while its journal is written ends the hash", { timeout: 5000 }, async () => {
  const { partial, ending, running, finishSaving } = await whileSaving();
  ending.abort();
  await finishSaving();
  await assert.rejects(running, (/** @type {any} */ error) => error.code === "cancelled");
  await partial.settle();
});
