// What Endpoint.local takes and refuses, and what it makes of it for the worker.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LocalEndpoint } from "../../web/endpoints/local.js";

globalThis.location = /** @type {any} */ ({ href: "http://page.test/app/" });

// A browser that can run threads, as environment.js sees it.
globalThis.crossOriginIsolated = true;

/** The first command to the worker. @param {object} options */
async function opened(options) {
  /** @type {any} */
  let command;
  globalThis.Worker = /** @type {any} */ (
    class {
      postMessage(/** @type {any} */ message) {
        command ??= message;
      }
      terminate() {}
    }
  );
  const endpoint = new LocalEndpoint(/** @type {any} */ ({ artifact: "st", ...options }));
  const controller = new AbortController();
  const opening = endpoint.open("model", controller.signal);
  await new Promise((resolve) => setTimeout(resolve));
  controller.abort();
  await assert.rejects(opening, { code: "cancelled" });
  return command;
}

test("the model alone", async () => {
  const command = await opened({ model: "m.gguf" });
  assert.deepEqual(command.files, { model: { kind: "url", url: "http://page.test/app/m.gguf" } });
  assert.deepEqual(command.options, {});
});

test("several files", async () => {
  const blob = new Blob(["GGUF"]);
  const { files } = await opened({
    model: new URL("http://models.test/m.gguf"),
    draftModel: new File([blob], "small.gguf"),
    speculation: "draft",
    adapters: [
      { name: "fr", model: "fr.gguf" },
      { name: "de", model: blob, scale: 0.5 },
    ],
  });
  assert.deepEqual(files.model, { kind: "url", url: "http://models.test/m.gguf" });
  assert.equal(files.draftModel.name, "small.gguf");
  assert.deepEqual(files.adapters, [
    { name: "fr", model: { kind: "url", url: "http://page.test/app/fr.gguf" } },
    { name: "de", model: { kind: "blob", blob, name: "the blob" }, scale: 0.5 },
  ]);
});

test("load options are passed on under the engine's names", async () => {
  const options = {
    batchSize: 64,
    schedule: "latency",
    queueLimit: 0,
    speculation: "prompt",
    draftTokens: 4,
    unifiedCache: true,
    slidingCache: false,
    prefixCacheBytes: 0,
    selfTest: false,
    healthWatch: "off",
  };
  const command = await opened({ model: "m.gguf", context: { size: 256, slots: 2 }, ...options });
  assert.deepEqual(command.options, { contextSize: 256, slots: 2, ...options });
  const left = await opened({ model: "m.gguf", batchSize: undefined, context: { size: undefined } });
  assert.deepEqual(left.options, {});
});

const A = { name: "a", model: "a.gguf" };

/** [the option that is named, the options] */
const REFUSED = [
  ["thread", { thread: 2 }],
  ["toString", { toString: 1 }],
  ["context.length", { context: { length: 1 } }],
  ["context", { context: null }],
  ["contextSize", { contextSize: 256 }],
  ["slots", { slots: 2 }],
  ["prefixCacheFolder", { prefixCacheFolder: "/tmp" }],
  ["prefixCacheDiskBytes", { prefixCacheDiskBytes: 1 }],
  ["batchSize", { batchSize: "64" }],
  ["schedule", { schedule: 1 }],
  ["unifiedCache", { unifiedCache: 1 }],
  ["selfTest", { selfTest: null }],
  ["draftModel", { draftModel: 7, speculation: "draft" }],
  ["draftModel", { draftModel: "d.gguf" }],
  ["draftModel", { speculation: "draft" }],
  ["adapters", { adapters: A }],
  ["adapters[0]", { adapters: [null] }],
  ["adapters[0].name", { adapters: [{ ...A, name: "" }] }],
  ["adapters[1].name", { adapters: [A, A] }],
  ["adapters[0].model", { adapters: [{ name: "a" }] }],
  ["adapters[0].scale", { adapters: [{ ...A, scale: NaN }] }],
  ["adapters[0].path", { adapters: [{ ...A, path: "a.gguf" }] }],
  ["model", { model: 7 }],
  ["artifact", { artifact: "simd" }],
];

for (const [option, options] of REFUSED) {
  test(`refused by name: ${option} of ${JSON.stringify(options)}`, () => {
    assert.throws(
      () => new LocalEndpoint(/** @type {any} */ ({ model: "m.gguf", ...options })),
      (error) => {
        assert.equal(error.code, "invalid_option");
        assert.deepEqual(error.detail, { option });
        assert.ok(error.message.includes(`"${option}"`), error.message);
        return true;
      },
    );
  });
}
