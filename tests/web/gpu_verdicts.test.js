// The memory of what a GPU has proven: kept per adapter, browser and build, merged, and never an obstacle.

import assert from "node:assert/strict";
import { test } from "node:test";

import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { browserVersion, GpuVerdicts } from "../../web/worker/gpu_verdicts.js";
import { readBlob } from "./read_blob.js";

const DAY = 24 * 3600 * 1000;
const SCOPE = {
  adapter: {
    info: { vendor: "nvidia", architecture: "hopper", device: "", description: "H200" },
    features: ["shader-f16", "subgroups"],
    limits: { maxBufferSize: 1024, maxComputeInvocationsPerWorkgroup: 256 },
    fallback: false,
    software: false,
  },
  browser: "Browser/1",
  build: "0123456789abcdef",
};
const MISMATCH = {
  code: "gpu_mismatch",
  message: "MUL_MAT is wrong",
  detail: { op: "MUL_MAT q4_K", error: 1 },
};

/** The adapter under another name. @param {object} changes */
const named = (changes) => ({ ...SCOPE.adapter, info: { ...SCOPE.adapter.info, ...changes } });

/** Verdicts whose clock stands where it is put. @param {object} [changes] of the scope */
async function openVerdicts(changes, storage = createMemoryStorage({ readBlob })) {
  const clock = { now: 1000 * DAY };
  const verdicts = await GpuVerdicts.in(storage, { ...SCOPE, ...changes }, () => clock.now);
  return { verdicts, storage, clock };
}

/** @param {GpuVerdicts} verdicts */
async function read(verdicts) {
  const { proven, failed, models } = await verdicts.read();
  return { proven: [...proven], failed, models: Object.fromEntries(models) };
}

const NOTHING = { proven: [], failed: null, models: {} };

test("nothing is known at first", async () => {
  const { verdicts, storage } = await openVerdicts();
  assert.deepEqual(await read(verdicts), NOTHING);
  assert.deepEqual(await storage.list(), [], "reading writes nothing");
});

test("what was told is there for the next one who opens the same, in one file", async () => {
  const { verdicts, storage, clock } = await openVerdicts();
  await verdicts.prove(["ADD f32", "MUL f32"]);
  await verdicts.prove(["MUL f32", "NORM f32"]);
  await verdicts.rememberLayers("m", { worked: 7, tooMany: 13 });
  await verdicts.fail(MISMATCH);
  const { verdicts: again } = await openVerdicts({}, storage);
  assert.deepEqual(await read(again), {
    proven: ["ADD f32", "MUL f32", "NORM f32"],
    failed: { ...MISMATCH, when: clock.now },
    models: { m: { worked: 7, tooMany: 13, when: clock.now } },
  });
  assert.equal((await storage.list()).length, 1);
});

for (const [name, changes] of [
  ["adapter", { adapter: named({ description: "H100" }) }],
  ["adapter's vendor", { adapter: named({ vendor: "amd" }) }],
  ["adapter's features", { adapter: { ...SCOPE.adapter, features: ["shader-f16"] } }],
  ["adapter's limits", { adapter: { ...SCOPE.adapter, limits: { maxBufferSize: 2048 } } }],
  ["browser", { browser: "Browser/2" }],
  ["build", { build: "fedcba9876543210" }],
]) {
  test(`another ${name} knows nothing of it`, async () => {
    const { verdicts, storage } = await openVerdicts();
    await verdicts.prove(["ADD f32"]);
    const { verdicts: other } = await openVerdicts(changes, storage);
    assert.deepEqual(await read(other), NOTHING);
  });
}

test("names do not run into each other", async () => {
  const { verdicts, storage } = await openVerdicts({
    adapter: named({ device: "a", description: "b" }),
  });
  await verdicts.prove(["ADD f32"]);
  const { verdicts: other } = await openVerdicts(
    { adapter: named({ device: "ab", description: "" }) },
    storage,
  );
  assert.deepEqual(await read(other), NOTHING);
});

test("an operation that fails is no longer proven, and one that agrees again refutes the failure", async () => {
  const { verdicts } = await openVerdicts();
  await verdicts.prove(["MUL_MAT q4_K", "ADD f32"]);
  await verdicts.fail(MISMATCH);
  assert.deepEqual((await read(verdicts)).proven, ["ADD f32"]);
  await verdicts.prove(["ADD f32"]);
  assert.equal(
    (await read(verdicts)).failed.message,
    MISMATCH.message,
    "another operation says nothing of it",
  );
  await verdicts.prove(["MUL_MAT q4_K"]);
  assert.deepEqual(await read(verdicts), { ...NOTHING, proven: ["ADD f32", "MUL_MAT q4_K"] });
});

test("what was bad is tried again after a month; what was proven stays", async () => {
  const { verdicts, clock } = await openVerdicts();
  await verdicts.prove(["ADD f32"]);
  await verdicts.fail(MISMATCH);
  await verdicts.rememberLayers("all", { worked: -1, tooMany: null });
  await verdicts.rememberLayers("some", { worked: 3, tooMany: 6 });
  clock.now += 29 * DAY;
  const before = await read(verdicts);
  assert.deepEqual([before.failed.code, Object.keys(before.models)], ["gpu_mismatch", ["all", "some"]]);
  clock.now += 2 * DAY;
  const after = await read(verdicts);
  assert.deepEqual([after.proven, after.failed, Object.keys(after.models)], [["ADD f32"], null, ["all"]]);
});

test("what did not fit is tried again some day, however often fewer layers are loaded", async () => {
  const { verdicts, clock } = await openVerdicts();
  for (let load = 0; load < 4; load++) {
    await verdicts.rememberLayers("m", { worked: 3, tooMany: 6 });
    clock.now += 10 * DAY;
  }
  assert.deepEqual((await read(verdicts)).models, {});
  await verdicts.rememberLayers("m", { worked: 3, tooMany: 5 });
  assert.equal((await read(verdicts)).models.m.tooMany, 5);
});

const ENTRY = ["m", { worked: 1, tooMany: null, when: 1000 * DAY }];
for (const [name, text, expected] of [
  ["not JSON", "{", NOTHING],
  ["empty", "", NOTHING],
  ["null", "null", NOTHING],
  ["a number", "7", NOTHING],
  ["another version", '{"version":2,"proven":["ADD f32"]}', NOTHING],
  ["no lists", '{"version":1,"proven":{"a":1},"failed":"x","models":7}', NOTHING],
  [
    "wrong parts",
    JSON.stringify({
      version: 1,
      proven: ["ADD f32", 7, null],
      failed: { ...MISMATCH, when: "yesterday" },
      models: [ENTRY, ["n", { worked: 1.5, tooMany: null, when: 1 }], ["o"], null, [7, ENTRY[1]]],
    }),
    { proven: ["ADD f32"], failed: null, models: { m: ENTRY[1] } },
  ],
]) {
  test(`a file that is ${name} is no error, and is replaced`, async () => {
    const { verdicts, storage } = await openVerdicts();
    await verdicts.prove(["X"]);
    const [{ name: file }] = await storage.list();
    await storage.writeText(file, text);
    assert.deepEqual(await read(verdicts), expected);
    await verdicts.prove(["NORM f32"]);
    assert.deepEqual((await read(verdicts)).proven, [...expected.proven, "NORM f32"]);
  });
}

for (const method of ["readText", "writeText", "list"]) {
  test(`a disk whose ${method} fails is no error`, async () => {
    const { verdicts, storage } = await openVerdicts();
    storage[method] = async () => {
      throw new Error("no disk");
    };
    await verdicts.prove(["ADD f32"]);
    await verdicts.fail(MISMATCH);
    await verdicts.rememberLayers("m", { worked: 1, tooMany: null });
    await verdicts.read();
  });
}

test("two tabs at once lose nothing that either has proven", async () => {
  const { verdicts, storage } = await openVerdicts();
  const { verdicts: other } = await openVerdicts({}, storage);
  const told = [...Array(20).keys()].map((index) => (index % 2 ? verdicts : other).prove([`OP ${index}`]));
  await Promise.all(told);
  assert.equal((await read(verdicts)).proven.length, 20);
});

test("files of what is gone are removed", async () => {
  const { verdicts: old, storage } = await openVerdicts({ browser: "Browser/0" });
  await old.prove(["ADD f32"]);
  await storage.writeText("damaged.json", "{");
  const { verdicts, clock } = await openVerdicts({}, storage);
  await verdicts.prove(["ADD f32"]);
  assert.equal((await storage.list()).length, 2, "the damaged one goes, the old one is not old enough");
  clock.now += 91 * DAY;
  await verdicts.prove(["MUL f32"]);
  assert.equal((await storage.list()).length, 1);
  assert.deepEqual((await read(verdicts)).proven, ["ADD f32", "MUL f32"]);
});

test("the lists stay short, and keep what is newest", async () => {
  const { verdicts } = await openVerdicts();
  await verdicts.prove([...Array(4096).keys()].map((index) => `OP ${index}`));
  await verdicts.prove(["NEW"]);
  const { proven } = await read(verdicts);
  assert.deepEqual([proven.length, proven[0], proven.at(-1)], [4096, "OP 1", "NEW"]);
  for (let index = 0; index < 65; index++) {
    await verdicts.rememberLayers(`m${index}`, { worked: 1, tooMany: null });
    await verdicts.rememberLayers("m0", { worked: 2, tooMany: null });
  }
  const { models } = await read(verdicts);
  assert.deepEqual([Object.keys(models).length, "m0" in models, "m1" in models], [64, true, false]);
});

test("a browser is named by what it tells of itself", () => {
  const version = browserVersion();
  assert.ok(version.includes(navigator.userAgent));
  assert.equal(version, browserVersion());
});
