// What is tried when the GPU fails to load a model, in which order, and what is remembered of it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HeadraceError } from "../../web/errors.js";
import { createMemoryStorage } from "../../web/models/memory_storage.js";
import { loadWhereItWorks } from "../../web/worker/backend_attempts.js";
import { GpuVerdicts } from "../../web/worker/gpu_verdicts.js";
import { readBlob } from "./read_blob.js";

const DAY = 24 * 3600 * 1000;
const INFO = { vendor: "nvidia", architecture: "hopper", device: "", description: "" };
const AUTO = {
  adapter: { info: INFO, features: [], limits: {}, fallback: false, software: false },
  powerPreference: null,
  required: false,
  layers: "auto",
  selfTest: "auto",
};
const BY_NAME = { ...AUTO, required: true };

const failure = (/** @type {any} */ code, detail = {}) =>
  new HeadraceError(code, `it is ${code}`, { detail });
const NO_ROOM = failure("out_of_memory", { device: "gpu" });
const MISMATCH = new HeadraceError("gpu_mismatch", "MUL_MAT q4_K: nmse 0.5 past 0.01", {
  detail: { op: "MUL_MAT q4_K" },
});

/** The verdicts of one adapter, kept from load to load. */
async function openVerdicts() {
  const clock = { now: 1000 * DAY };
  const scope = { adapter: AUTO.adapter, browser: "b", build: "c" };
  const storage = createMemoryStorage({ readBlob });
  return { clock, storage, verdicts: await GpuVerdicts.in(storage, scope, () => clock.now) };
}

/**
 * Loads on a GPU that does what `gpuLoad` says of a number of layers: an error to fail with, else the ready event.
 * @param {object} given
 */
async function load({ gpu = AUTO, gpuLoad, cpuError = null, layers = null, verdicts, model = "m" }) {
  const attempts = /** @type {any[]} */ ([]);
  const outcome = await loadWhereItWorks({
    ...{ gpu, model, options: { contextSize: 256 }, layers: () => layers },
    verdicts: async () => verdicts ?? (await openVerdicts()).verdicts,
    async load({ options, provenOps }) {
      assert.equal(options.contextSize, 256, "what is asked for stays");
      const { backend, gpuLayers, gpuSelfTest } = options;
      attempts.push(backend === "webgpu" ? gpuLayers : "cpu");
      if (backend !== "webgpu") {
        assert.deepEqual(
          [options, provenOps],
          [{ contextSize: 256 }, []],
          "the CPU is told nothing of a GPU",
        );
        if (cpuError) throw cpuError;
        return /** @type {any} */ ({ backend: "cpu" });
      }
      const result = gpuLoad(gpuLayers, { gpuSelfTest, provenOps });
      if (result instanceof Error) throw result;
      return result;
    },
  }).then(
    (loaded) => loaded,
    (error) => ({ error, ready: null, reasons: [] }),
  );
  return { attempts, ...outcome, error: "error" in outcome ? outcome.error : null };
}

/** The ready event of an engine with some of 31 layers on the GPU. */
const ready = (/** @type {number} */ layers, proven = /** @type {string[]} */ ([])) => ({
  backend: "webgpu",
  gpu: { description: "", layers: layers < 0 ? 31 : layers, layersTotal: 31, selfTest: { proven } },
});

/** A GPU with room for so many layers. @param {number} most */
const roomFor = (most) => (/** @type {number} */ layers) =>
  (layers < 0 ? 31 : layers) > most ? NO_ROOM : ready(layers);

test("on the CPU there is one attempt, and no verdict is looked at", async () => {
  const verdicts = /** @type {any} */ (null);
  const { attempts, reasons } = await load({ gpu: null, gpuLoad: assert.fail, verdicts });
  assert.deepEqual([attempts, reasons], [["cpu"], []]);
});

test("a GPU with room for everything takes everything, and nothing is said", async () => {
  const { attempts, ready: loaded, reasons } = await load({ gpuLoad: roomFor(31) });
  assert.deepEqual([attempts, loaded.backend, reasons], [[-1], "webgpu", []]);
});

test("fewer layers are tried, halved, three times in all (case E6)", async () => {
  const layers = { estimate: -1, total: 31 };
  const some = await load({ gpuLoad: roomFor(7), layers });
  assert.deepEqual([some.attempts, some.ready.backend], [[-1, 15, 7], "webgpu"]);
  assert.deepEqual(some.reasons, ["7 of 31 layers on the GPU: more did not fit."]);

  const none = await load({ gpuLoad: roomFor(6), layers });
  assert.deepEqual([none.attempts, none.ready.backend], [[-1, 15, 7, "cpu"], "cpu"]);
  assert.match(none.reasons[0], /^CPU after all, because the GPU \(nvidia hopper\) failed: .*out_of_memory/);
});

test("the estimate is where it begins, and is said when it holds", async () => {
  const layers = { estimate: 12, total: 31 };
  const { attempts, reasons } = await load({ gpuLoad: roomFor(20), layers });
  assert.deepEqual(attempts, [12]);
  assert.deepEqual(reasons, ["12 of 31 layers on the GPU: more are not expected to fit."]);
  assert.deepEqual(
    (await load({ gpuLoad: roomFor(1), layers: { ...layers, estimate: 2 } })).attempts,
    [2, 1],
  );
  assert.deepEqual((await load({ gpuLoad: roomFor(0), layers: { ...layers, estimate: 1 } })).attempts, [
    1,
    "cpu",
  ]);
});

test("a model that tells nothing of its layers is tried whole", async () => {
  assert.deepEqual((await load({ gpuLoad: roomFor(7) })).attempts, [-1, "cpu"]);
});

test("what fitted is remembered, what did not is not tried again", async () => {
  const { verdicts, clock } = await openVerdicts();
  const layers = { estimate: -1, total: 31 };
  await load({ gpuLoad: roomFor(15), layers, verdicts });
  const again = await load({ gpuLoad: roomFor(15), layers, verdicts });
  assert.deepEqual(again.attempts, [15]);
  assert.deepEqual(again.reasons, ["15 of 31 layers on the GPU: more did not fit."]);
  assert.deepEqual((await load({ gpuLoad: roomFor(31), layers, verdicts, model: "n" })).attempts, [-1]);
  clock.now += 31 * DAY;
  assert.deepEqual((await load({ gpuLoad: roomFor(31), layers, verdicts })).attempts, [-1]);
});

test("a GPU that had no room at all is tried with fewer next time", async () => {
  const { verdicts } = await openVerdicts();
  const layers = { estimate: -1, total: 31 };
  await load({ gpuLoad: roomFor(2), layers, verdicts });
  assert.deepEqual((await load({ gpuLoad: roomFor(3), layers, verdicts })).attempts, [3]);
});

test("a number of layers is taken as it is", async () => {
  const gpu = { ...AUTO, layers: 9 };
  const { verdicts } = await openVerdicts();
  const fits = await load({ gpu, gpuLoad: roomFor(9), layers: { estimate: 3, total: 31 }, verdicts });
  assert.deepEqual([fits.attempts, fits.reasons], [[9], ["9 of 31 layers on the GPU: as asked."]]);
  assert.deepEqual((await load({ gpu, gpuLoad: roomFor(8), verdicts })).attempts, [9, "cpu"]);
  const byName = await load({ gpu: { ...gpu, required: true }, gpuLoad: roomFor(8), verdicts });
  assert.deepEqual([byName.attempts, byName.error], [[9], NO_ROOM]);
  assert.equal((await verdicts.read()).models.size, 0, "and is no experience for other loads");
});

const LEADS_TO_CPU = ["gpu_failed", "device_lost", "kernel_missing", "numeric_fault", "engine_aborted"];
for (const error of [MISMATCH, ...LEADS_TO_CPU.map((code) => failure(code)), failure("model_invalid")]) {
  test(`${error.code} leads to the CPU, but for a GPU asked for by name (case E5)`, async () => {
    const auto = await load({ gpuLoad: () => error });
    assert.deepEqual([auto.attempts, auto.ready.backend], [[-1, "cpu"], "cpu"]);
    assert.match(auto.reasons[0], new RegExp(`^CPU after all.*${error.message}\\.$`));
    const byName = await load({ gpu: BY_NAME, gpuLoad: () => error });
    assert.deepEqual([byName.attempts, byName.error], [[-1], error]);
  });
}

const OTHER = ["storage_failed", "model_truncated", "cancelled", "invalid_option", "artifact_missing"];
for (const error of [
  ...OTHER.map((code) => failure(code)),
  failure("out_of_memory"),
  new Error("a defect"),
]) {
  test(`${error.code ?? "a foreign error"} is no reason for another attempt`, async () => {
    const { attempts, error: thrown } = await load({ gpuLoad: () => error });
    assert.deepEqual([attempts, thrown], [[-1], error]);
  });
}

test("what the CPU cannot do either is told as the CPU says it", async () => {
  const cpuError = failure("model_invalid");
  const { error } = await load({ gpuLoad: () => failure("model_invalid"), cpuError });
  assert.equal(error, cpuError);
});

test("a mismatch is told with its figures, and remembered (case E7)", async () => {
  const { verdicts } = await openVerdicts();
  const first = await load({ gpuLoad: () => MISMATCH, verdicts });
  assert.match(first.reasons[0], /^CPU after all.*: MUL_MAT q4_K: nmse 0\.5 past 0\.01\.$/);
  const second = await load({ gpuLoad: assert.fail, verdicts });
  assert.deepEqual(second.attempts, ["cpu"], "the GPU is not even started");
  assert.match(
    second.reasons[0],
    /^CPU: on 1972-09-27 the GPU \(nvidia hopper\) was found to fail: .*nmse 0\.5 past 0\.01\.$/,
  );
});

test("a known mismatch is proven again by name or by force, and goes when the operation agrees", async () => {
  for (const gpu of [BY_NAME, { ...AUTO, selfTest: "force" }, { ...AUTO, selfTest: "skip" }]) {
    const { verdicts } = await openVerdicts();
    await verdicts.fail(MISMATCH.toWire());
    const { attempts } = await load({ gpu, gpuLoad: (n) => ready(n, ["MUL_MAT q4_K"]), verdicts });
    assert.deepEqual(attempts, [-1]);
    const { failed, proven } = await verdicts.read();
    if (gpu.selfTest === "skip") assert.equal(failed?.code, "gpu_mismatch", "skip proves nothing");
    else assert.deepEqual([failed, [...proven]], [null, ["MUL_MAT q4_K"]]);
  }
});

test("other failures are not held against the adapter", async () => {
  const { verdicts } = await openVerdicts();
  await load({ gpuLoad: () => failure("device_lost"), verdicts });
  assert.deepEqual((await load({ gpuLoad: roomFor(31), verdicts })).attempts, [-1]);
});

test("what was proven need not be compared again, unless it is forced or skipped", async () => {
  const { verdicts } = await openVerdicts();
  const told = /** @type {any[]} */ ([]);
  const gpuLoad = (/** @type {number} */ layers, /** @type {object} */ given) => {
    told.push(given);
    return ready(layers, ["ADD f32"]);
  };
  for (const selfTest of ["auto", "auto", "force", "skip"])
    await load({ gpu: { ...AUTO, selfTest }, gpuLoad, verdicts });
  assert.deepEqual(told, [
    { gpuSelfTest: "auto", provenOps: [] },
    { gpuSelfTest: "auto", provenOps: ["ADD f32"] },
    { gpuSelfTest: "force", provenOps: [] },
    { gpuSelfTest: "skip", provenOps: [] },
  ]);
});
