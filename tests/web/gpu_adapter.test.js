// What is written down of an adapter, and that an adapter that hangs, fails or is none ends in a reason.

import assert from "node:assert/strict";
import { test } from "node:test";

import { adapterName, probeAdapter } from "../../web/gpu_adapter.js";

/** Limits are properties of a prototype, as in browsers. */
class Limits {
  get maxBufferSize() {
    return 2 ** 28;
  }
}
for (const name of ["maxBufferSize", "constructor"]) {
  const enumerable = name === "maxBufferSize";
  Object.defineProperty(Limits.prototype, name, {
    ...Object.getOwnPropertyDescriptor(Limits.prototype, name),
    enumerable,
  });
}

/** @param {object} [changes] */
const adapter = (changes) => ({
  info: { vendor: "intel", architecture: "gen-12lp", device: "0x9a49", description: "", subgroupMinSize: 8 },
  features: new Set(["shader-f16", "subgroups"]),
  limits: new Limits(),
  ...changes,
});

/** @param {unknown} given what requestAdapter resolves to */
const probe = (given) => probeAdapter(undefined, { gpu: { requestAdapter: async () => given } });

test("an adapter becomes plain values that can be sent", async () => {
  const { adapter: facts, adapterProblem } = await probe(adapter());
  assert.equal(adapterProblem, null);
  assert.deepEqual(structuredClone(facts), {
    info: { vendor: "intel", architecture: "gen-12lp", device: "0x9a49", description: "" },
    features: ["shader-f16", "subgroups"],
    limits: { maxBufferSize: 2 ** 28 },
    fallback: false,
    software: false,
  });
});

const info = (/** @type {object} */ changes) => ({
  info: { vendor: "", architecture: "", device: "", description: "", ...changes },
});

for (const [name, changes, fallback, software] of [
  ["SwiftShader", info({ vendor: "google", architecture: "swiftshader" }), false, true],
  ["lavapipe", info({ description: "llvmpipe (LLVM 19.1, 256 bits)" }), false, true],
  ["lavapipe by its driver's name", info({ vendor: "mesa", device: "lavapipe" }), false, true],
  ["WARP", info({ vendor: "microsoft", architecture: "warp" }), false, true],
  ["WARP's description", info({ description: "Microsoft Basic Render Driver" }), false, true],
  ["a fallback adapter", info({ isFallbackAdapter: true }), true, true],
  ["a fallback adapter of older browsers", { isFallbackAdapter: true }, true, true],
  ["Google's own hardware", info({ vendor: "google", architecture: "pixel" }), false, false],
  ["a name that only begins alike", info({ description: "Warpath 9000" }), false, false],
  ["a browser that tells nothing", { info: undefined }, false, false],
]) {
  test(`software or not: ${name}`, async () => {
    const { adapter: facts } = await probe(adapter(changes));
    assert.deepEqual([facts.fallback, facts.software], [fallback, software]);
  });
}

test("the power preference is passed on, and left out without one", async () => {
  const asked = /** @type {object[]} */ ([]);
  const gpu = { requestAdapter: async (/** @type {object} */ options) => asked.push(options) && adapter() };
  await probeAdapter(undefined, { gpu });
  await probeAdapter("high-performance", { gpu });
  assert.deepEqual(asked, [{}, { powerPreference: "high-performance" }]);
});

for (const [name, gpu, reason] of [
  ["no WebGPU", null, "this browser has no WebGPU"],
  ["no adapter", { requestAdapter: async () => null }, "the browser offers none"],
  ["a rejection", { requestAdapter: () => Promise.reject(new Error("lost")) }, /failed to give one \(lost\)/],
  [
    "an exception",
    {
      requestAdapter() {
        throw new TypeError("blocked");
      },
    },
    /blocked/,
  ],
  ["no answer", { requestAdapter: () => new Promise(() => {}) }, "the browser did not answer within 0.01 s"],
  ["an adapter without limits or features", { requestAdapter: async () => ({}) }, /failed to give one/],
]) {
  test(`a reason instead of an adapter: ${name}`, async () => {
    const { adapter: facts, adapterProblem } = await probeAdapter(undefined, { gpu, timeoutMs: 10 });
    assert.equal(facts, null);
    if (typeof reason === "string") assert.equal(adapterProblem, reason);
    else assert.match(adapterProblem, reason);
  });
}

test("an answered question leaves no timer behind", async () => {
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  await probe(adapter());
  assert.equal(timers(), before);
});

test("what people call an adapter", () => {
  const all = { vendor: "nvidia", architecture: "hopper", device: "0x2335", description: "H200" };
  assert.equal(adapterName(all), "nvidia hopper H200");
  assert.equal(adapterName({ ...all, description: "" }), "nvidia hopper 0x2335");
  assert.equal(adapterName({ vendor: "", architecture: "", device: "", description: "" }), "unnamed");
});
