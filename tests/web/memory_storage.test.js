// The storage in memory keeps what every storage promises; its bytes do not stay in the heap.

import assert from "node:assert/strict";
import { test } from "node:test";

import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { failuresOf, SCENARIOS, SPARSE_SCENARIOS } from "../contract/storage_contract.js";
import { readBlob } from "./read_blob.js";

const makeStorage = async () => createMemoryStorage({ readBlob });

for (const [name, scenario] of Object.entries({ ...SCENARIOS, ...SPARSE_SCENARIOS })) {
  test(name, async () => {
    assert.deepEqual(await failuresOf(makeStorage, { [name]: scenario }), {});
  });
}

test("the contract fails for a storage that breaks it, and only there", async () => {
  const broken = async () => {
    const storage = createMemoryStorage({ readBlob });
    return Object.assign(storage, { remove: async () => {}, readText: async () => "" });
  };
  const { "rename moves and replaces": fine, ...scenarios } = SCENARIOS;
  const quick = Object.fromEntries(
    Object.entries(scenarios).filter(([name]) => /text|remove|names are/.test(name)),
  );
  const failures = await failuresOf(broken, { fine, ...quick });
  assert.deepEqual(
    Object.keys(failures),
    Object.keys(quick).filter((name) => !/in order/.test(name)),
  );
  assert.equal(Object.keys(failures).length, 5);
});

test("a file that was closed is read from Blobs alone, and not more often than it has blocks", async () => {
  let read = 0;
  const storage = createMemoryStorage({
    readBlob: (blob) => {
      read += 1;
      return readBlob(blob);
    },
  });
  const file = await storage.openWrite("a.gguf");
  for (let at = 0; at < 16; at += 1) file.write(new Uint8Array(2 ** 20).fill(at), at * 2 ** 20);
  assert.equal(read, 0);
  file.close();
  const reader = await storage.openRead("a.gguf");
  reader.read(new Uint8Array(16 * 2 ** 20), 0);
  assert.equal(read, 4);
});

test("a file that is being written is in the heap with no more than its last blocks", async () => {
  let read = 0;
  const storage = createMemoryStorage({
    readBlob: (blob) => {
      read += blob.size;
      return readBlob(blob);
    },
  });
  const file = await storage.openWrite("a.gguf");
  for (let at = 0; at < 64; at += 1) file.write(new Uint8Array(2 ** 20).fill(at), at * 2 ** 20);
  file.read(new Uint8Array(2 ** 26), 0);
  assert.equal(file.size, 2 ** 26);
  assert.ok(read >= 2 ** 26 - 2 ** 25 && read < 2 ** 26, `${read} bytes are in Blobs`);
});

test("no memory left for a block is storage_full, a Blob that cannot be read storage_failed", async () => {
  const lost = createMemoryStorage({
    readBlob: () => {
      throw new DOMException("gone", "NotReadableError");
    },
  });
  const file = await lost.openWrite("a.gguf");
  file.write(new Uint8Array(10), 0);
  file.close();
  const read = await lost.openRead("a.gguf");
  assert.throws(() => read.read(new Uint8Array(1), 0), { code: "storage_failed" });

  const narrow = createMemoryStorage({
    readBlob: () => {
      throw new RangeError("Array buffer allocation failed");
    },
  });
  await narrow.writeText("a.gguf", "text");
  const written = await narrow.openWrite("a.gguf");
  assert.throws(() => written.write(new Uint8Array(1), 0), {
    code: "storage_full",
    detail: { file: "a.gguf" },
  });
});
