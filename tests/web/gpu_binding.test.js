// Futures, faults and handles of the engine's binding to WebGPU, on a GPU that does as it is told.
//
// Counterpart: tests/browser/test_webgpu_layer.py, the same on a real adapter.

import assert from "node:assert/strict";
import test from "node:test";

import { GpuBinding } from "../../web/worker/gpu_binding.js";
import { HandleTable } from "../../web/worker/handle_table.js";

const [SETTLED, TIMED_OUT, LOST] = [1, 2, 3];

class GPUOutOfMemoryError extends Error {}
class GPUValidationError extends Error {}
Object.assign(globalThis, { GPUOutOfMemoryError, GPUValidationError });

/** A device whose loss and whose error scopes a test decides. */
function fakeDevice() {
  const device = { scopes: [], found: [], lose: () => {} };
  return Object.assign(device, {
    lost: new Promise((resolve) => (device.lose = resolve)),
    queue: { onSubmittedWorkDone: () => new Promise(() => {}) },
    pushErrorScope: (kind) => device.scopes.push(kind),
    popErrorScope: async () => device.found[device.scopes.pop()] ?? null,
    createBuffer: (descriptor) => descriptor,
  });
}

async function bound(device = fakeDevice()) {
  const asked = [];
  const adapter = { requestDevice: async (descriptor) => (asked.push(descriptor), device) };
  const gpu = { requestAdapter: async (options) => (asked.push(options), adapter) };
  const binding = new GpuBinding(gpu, "low-power");
  const value = async (future) => {
    assert.equal(await binding.wait(future, -1), SETTLED);
    const result = binding.takeResult(future);
    binding.release(future);
    return result.value;
  };
  const adapterHandle = await value(binding.requestAdapter());
  binding.requireFeature("shader-f16");
  binding.requireLimit("maxBufferSize", 1024);
  const handle = await value(binding.requestDevice(adapterHandle));
  return { binding, device, handle, asked };
}

test("handles are used again, and a released one is nobody's", () => {
  const table = new HandleTable();
  const [a, b] = [table.add({ name: "a" }), table.add({ name: "b" })];
  table.release(a);
  assert.equal(table.size, 1);
  assert.throws(() => table.get(a), /no GPU object/);
  assert.throws(() => table.release(a), /no GPU object/);
  assert.equal(table.add({ name: "c" }), a);
  assert.equal(table.get(b).name, "b");
  assert.throws(() => table.get(0));
});

test("what was required is asked for once, with the preferred power", async () => {
  const { asked, binding } = await bound();
  assert.deepEqual(asked, [
    { powerPreference: "low-power" },
    { requiredFeatures: ["shader-f16"], requiredLimits: { maxBufferSize: 1024 } },
  ]);
  assert.equal(binding.liveHandles, 2);
});

test("a browser without an adapter is a reason, no exception", async () => {
  const binding = new GpuBinding({ requestAdapter: async () => null });
  const future = binding.requestAdapter();
  assert.equal(await binding.wait(future, -1), SETTLED);
  assert.deepEqual(binding.takeResult(future), {
    succeeded: false,
    value: 0,
    reason: "the browser has no adapter for this page",
  });
});

test("a wait ends in time", async () => {
  const { binding, handle } = await bound();
  assert.equal(await binding.wait(binding.workDone(handle), 5), TIMED_OUT);
});

test("a loss ends a wait that would last for ever, now and later", async () => {
  const { binding, handle, device } = await bound();
  const waiting = binding.wait(binding.workDone(handle), -1);
  device.lose({ reason: "unknown", message: "gone" });
  assert.equal(await waiting, LOST);
  assert.deepEqual(binding.takeFault(), { kind: 1, message: "gone" });
  assert.equal(binding.takeFault(), null);
  assert.equal(await binding.wait(binding.workDone(handle), -1), LOST);
});

test("a wait that is over leaves nothing behind", async () => {
  const { binding, handle, device } = await bound();
  device.queue.onSubmittedWorkDone = async () => {};
  const before = binding.liveHandles;
  for (let token = 0; token < 3; token++) {
    const future = binding.workDone(handle);
    assert.equal(await binding.wait(future, 1000), SETTLED);
    binding.release(future);
  }
  assert.equal(binding.liveHandles, before);
  assert.equal(binding.waiting, 0);
});

test("errors that nobody caught are told once, by kind, in order", async () => {
  const { binding, device } = await bound();
  const errors = [new GPUOutOfMemoryError("full"), new GPUValidationError("wrong"), new Error("odd")];
  for (const error of errors) device.onuncapturederror({ error, preventDefault() {} });
  const kinds = [binding.takeFault(), binding.takeFault(), binding.takeFault()].map(({ kind }) => kind);
  assert.deepEqual(kinds, [3, 4, 5]);
  assert.equal(binding.takeFault(), null);
});

for (const scope of ["out-of-memory", "validation"]) {
  test(`a large buffer that could not be made is told: ${scope}`, async () => {
    const { binding, device, handle } = await bound();
    device.found[scope] = new Error("no");
    const { future } = binding.createLargeBuffer(handle, 2 ** 30, 128, "weights");
    assert.equal(await binding.wait(future, -1), SETTLED);
    assert.equal(binding.takeResult(future).reason, "no");
    assert.equal(device.scopes.length, 0);
  });
}
