// What Endpoint.local takes and refuses, and what it makes of it for the worker.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LocalEndpoint } from "../../web/endpoints/local.js";
import { REQUIRED_LIMITS } from "../../web/gpu_requirements.js";

globalThis.location = /** @type {any} */ ({ href: "http://page.test/app/" });

// A browser that can run threads, as environment.js sees it.
globalThis.crossOriginIsolated = true;

/** What an address alone becomes. @param {...string} addresses */
const remote = (...addresses) => ({ kind: "remote", addresses, headers: {}, sha256: null });

const ID = `sha256-${"a".repeat(64)}`;

/** The first command to the worker. @param {object} options @param {object} [context] of the client */
async function opened(options, context) {
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
  const opening = endpoint.open("model", controller.signal, context);
  await new Promise((resolve) => setTimeout(resolve));
  controller.abort();
  await assert.rejects(opening, { code: "cancelled" });
  return command;
}

test("the model alone", async () => {
  const command = await opened({ model: "m.gguf" });
  assert.deepEqual(command.files, { model: remote("http://page.test/app/m.gguf") });
  assert.deepEqual(command.options, {});
  assert.deepEqual(command.store, { kind: "auto", limitBytes: null });
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
  assert.deepEqual(files.model, remote("http://models.test/m.gguf"));
  assert.equal(files.draftModel.files[0].name, "small.gguf");
  assert.deepEqual(files.adapters, [
    { name: "fr", model: remote("http://page.test/app/fr.gguf") },
    { name: "de", model: { kind: "files", files: [{ blob, name: "the blob" }] }, scale: 0.5 },
  ]);
});

test("every way to name a model", async () => {
  const model = async (/** @type {unknown} */ given) => (await opened({ model: given })).files.model;
  const [one, two] = [new Blob(["1"]), new File(["2"], "two.gguf")];
  assert.deepEqual(await model("hf:owner/repo/m.gguf@v1"), remote("hf:owner/repo/m.gguf@v1"));
  assert.deepEqual(
    await model(["b.gguf", new URL("http://x.test/a.gguf")]),
    remote("http://page.test/app/b.gguf", "http://x.test/a.gguf"),
  );
  assert.deepEqual(await model([two, one]), {
    kind: "files",
    files: [
      { blob: two, name: "two.gguf" },
      { blob: one, name: "blob 2" },
    ],
  });
  assert.deepEqual(await model(ID), { kind: "stored", id: ID });
  assert.deepEqual(await model({ id: ID, name: "of client.models.list()" }), { kind: "stored", id: ID });
});

test("what the store is told", async () => {
  const options = { headers: { Authorization: "Bearer x" }, sha256: "A".repeat(64) };
  const { files, store } = await opened(
    { model: "m.gguf", store: "keep", evict: false, huggingFace: "/mirror", ...options },
    { limitBytes: 5, models: { filesInMemory: async () => null } },
  );
  assert.deepEqual(files.model, {
    ...remote("http://page.test/app/m.gguf"),
    ...options,
    sha256: [options.sha256],
  });
  assert.deepEqual(store, {
    kind: "keep",
    evict: false,
    huggingFace: "http://page.test/mirror",
    limitBytes: 5,
  });
});

test("a stored model that only the page has in memory is handed over (case D7)", async () => {
  const files = [{ name: "m.gguf", blob: new Blob(["GGUF"]) }];
  const models = { filesInMemory: async (/** @type {string} */ id) => (id === ID ? files : null) };
  const options = { adapters: [{ name: "a", model: { id: ID }, scale: 2 }], model: "m.gguf" };
  const command = await opened(options, { limitBytes: null, models });
  assert.deepEqual(command.files, {
    model: remote("http://page.test/app/m.gguf"),
    adapters: [{ name: "a", model: { kind: "files", files, id: ID }, scale: 2 }],
  });
});

test("persistence is asked for once, and only when something will be kept", async () => {
  const asked = /** @type {string[]} */ ([]);
  const flags = new Map();
  const { storage } = navigator;
  Object.defineProperty(navigator, "storage", {
    configurable: true,
    value: { persist: async () => asked.push("persist") },
  });
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (/** @type {string} */ key) => flags.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => flags.set(key, value),
  });
  try {
    const blob = new Blob(["GGUF"]);
    for (const options of [{ model: blob }, { model: ID }, { model: "m.gguf", store: "memory" }])
      await opened(options);
    assert.deepEqual(asked, []);
    await opened({ model: blob, store: "keep" });
    await opened({ model: "m.gguf" });
    assert.deepEqual(asked, ["persist"]);
  } finally {
    Object.defineProperty(navigator, "storage", { configurable: true, value: storage });
  }
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

/** A page with WebGPU and JSPI, whose adapter does. @param {() => Promise<void>} action */
async function withGpu(action) {
  const asked = /** @type {object[]} */ ([]);
  const adapter = {
    features: new Set(["shader-f16"]),
    info: { vendor: "nvidia", architecture: "hopper" },
    limits: REQUIRED_LIMITS,
  };
  const requestAdapter = async (/** @type {object} */ options) => asked.push(options) && adapter;
  const { Suspending } = /** @type {any} */ (WebAssembly);
  Object.defineProperty(navigator, "gpu", { configurable: true, value: { requestAdapter } });
  /** @type {any} */ (WebAssembly).Suspending = class {};
  globalThis.isSecureContext = true;
  try {
    await action();
    return asked;
  } finally {
    Reflect.deleteProperty(navigator, "gpu");
    /** @type {any} */ (WebAssembly).Suspending = Suspending;
    if (Suspending === undefined) Reflect.deleteProperty(WebAssembly, "Suspending");
    Reflect.deleteProperty(globalThis, "isSecureContext");
  }
}

test("the GPU's options reach the worker, with the adapter that was asked for as wanted", async () => {
  const asked = await withGpu(async () => {
    const { gpu, options } = await opened({ model: "m.gguf" });
    assert.deepEqual(options, {});
    assert.deepEqual([gpu.layers, gpu.selfTest, gpu.required], ["auto", "auto", false]);
    assert.equal(gpu.adapter.info.vendor, "nvidia");
    const all = { backend: "webgpu", gpuLayers: 0, gpuSelfTest: "force", powerPreference: "low-power" };
    const chosen = (await opened({ model: "m.gguf", ...all })).gpu;
    assert.deepEqual([chosen.layers, chosen.selfTest, chosen.required], [0, "force", true]);
    assert.equal(chosen.powerPreference, "low-power");
  });
  assert.deepEqual(asked, [{}, { powerPreference: "low-power" }]);
});

test("on the CPU, as asked, no adapter is asked for", async () => {
  const asked = await withGpu(async () => {
    assert.equal((await opened({ model: "m.gguf", backend: "cpu" })).gpu, null);
  });
  assert.deepEqual(asked, []);
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
  ["model", { model: [] }],
  ["model", { model: ["a.gguf", new Blob([])] }],
  ["model", { model: [ID, ID].map((id) => ({ id })) }],
  ["model", { model: { id: "sha256-short" } }],
  ["model", { model: "http://" }],
  ["store", { store: "disk" }],
  ["evict", { evict: 1 }],
  ["headers", { headers: "Bearer x" }],
  ["headers", { headers: { Authorization: 7 } }],
  ["headers", { model: new Blob([]), headers: {} }],
  ["sha256", { sha256: "abc" }],
  ["sha256", { sha256: [] }],
  ["sha256", { model: ID, sha256: "a".repeat(64) }],
  ["huggingFace", { huggingFace: "http://" }],
  ["artifact", { artifact: "simd" }],
  ["backend", { backend: "gpu" }],
  ["gpuLayers", { gpuLayers: -1 }],
  ["gpuLayers", { gpuLayers: 1.5 }],
  ["gpuLayers", { gpuLayers: "all" }],
  ["gpuLayers", { gpuLayers: null }],
  ["gpuSelfTest", { gpuSelfTest: true }],
  ["gpuSelfTest", { backend: "webgpu", gpuSelfTest: "off" }],
  ["powerPreference", { powerPreference: "low" }],
  ["allowSoftwareAdapter", { allowSoftwareAdapter: 1 }],
  ["gpuLayers", { backend: "cpu", gpuLayers: "auto" }],
  ["gpuSelfTest", { backend: "cpu", gpuSelfTest: "skip" }],
  ["powerPreference", { backend: "cpu", powerPreference: "low-power" }],
  ["allowSoftwareAdapter", { backend: "cpu", allowSoftwareAdapter: false }],
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

test("a header that cannot be one is refused without showing it (case D10)", () => {
  const headers = { Authorization: "SECRET\nx" };
  assert.throws(
    () => new LocalEndpoint({ model: "m.gguf", headers }),
    (error) => {
      assert.equal(error.code, "invalid_option");
      assert.doesNotMatch(error.message + JSON.stringify(error.detail) + String(error.cause), /SECRET/);
      return true;
    },
  );
});
