// What tests of the model store begin with: a store in memory, servers that end with their test, hashes.
//
// Counterparts: model_store.test.js and model_store_keeping.test.js.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { afterEach } from "node:test";

import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { ModelStore } from "../../web/models/model_store.js";
import { serveModels } from "./model_server.js";
import { readBlob } from "./read_blob.js";

export const MIB = 2 ** 20;

/** @type {import("./model_server.js").ModelServer[]} */
const servers = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** @param {Record<string, Uint8Array>} files @param {object} [options] */
export async function serve(files, options) {
  const server = await serveModels(files, options);
  servers.push(server);
  return server;
}

/** @param {object} [options] of the store @param {object} [quota] what estimate() tells */
export function makeStore(options = {}, quota) {
  const storage = createMemoryStorage({ readBlob });
  if (quota) storage.estimate = async () => /** @type {any} */ (quota);
  return { storage, store: new ModelStore(storage, options) };
}

export const sha256 = (/** @type {Uint8Array} */ bytes) => createHash("sha256").update(bytes).digest("hex");

/** @param {import("../../web/models/types.js").Storage} storage */
export async function names(storage) {
  return (await storage.list()).map(({ name }) => name);
}

/** All bytes of an open model. @param {{files: import("../../web/models/types.js").ReadableFile[]}} open */
export function bytesOf({ files }) {
  return files.map((file) => {
    const bytes = new Uint8Array(file.size);
    assert.equal(file.read(bytes, 0), file.size);
    return Buffer.from(bytes);
  });
}
