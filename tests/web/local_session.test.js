// The page's end of a worker: what it sends, and what it makes of the events, on a worker that only listens.

import assert from "node:assert/strict";
import { test } from "node:test";

import { CHOICE, openSession, READY, sent, SOURCE, start } from "./fake_session.js";

test("what the model is made for, and how far the loading is, are told as they come", async () => {
  const { session, progress } = await openSession();
  assert.deepEqual(session.capabilities().operations, ["query", "embed"]);
  assert.deepEqual(session.capabilities().source, SOURCE);
  assert.deepEqual(session.capabilities().reasons, ["As asked.", "Kept in memory."]);
  assert.deepEqual(progress, [{ phase: "download", file: "model", loaded: 1, total: 2 }]);
});

const ADAPTER = Object.freeze({ info: { vendor: "v" }, features: [], limits: {} });
const GPU_CHOICE = { ...CHOICE, backend: "webgpu", reasons: ["WebGPU: it has what is needed."] };
GPU_CHOICE.gpu = { adapter: ADAPTER, powerPreference: null, required: false };

test("the worker is told of the GPU, and what it made of it is a capability", async () => {
  const use = { description: "v", layers: 3, layersTotal: 4, selfTest: { tested: 1 } };
  const ready = { ...READY, backend: "webgpu", gpu: use, reasons: ["3 of 4 layers."] };
  const { session, worker } = await openSession({ choice: GPU_CHOICE, ready });
  assert.deepEqual(worker.commands[0].gpu, { ...GPU_CHOICE.gpu, layers: "auto", selfTest: "auto" });
  const { backend, gpu, reasons } = session.capabilities();
  assert.equal(backend, "webgpu");
  assert.deepEqual(gpu, { ...use, adapter: ADAPTER });
  assert.deepEqual(reasons, ["WebGPU: it has what is needed.", "Kept in memory.", "3 of 4 layers."]);
});

test("a worker that turned to the CPU is believed, and says why", async () => {
  const ready = { ...READY, reasons: ["CPU after all: x."] };
  const { session } = await openSession({ choice: GPU_CHOICE, ready });
  const { backend, gpu, reasons } = session.capabilities();
  assert.deepEqual([backend, gpu], ["cpu", null]);
  assert.equal(reasons.at(-1), "CPU after all: x.");
});

test("a request is passed on as it is, with a number of its own", async () => {
  const { session, worker } = await openSession();
  start(session, { operation: "embed", inputs: ["a"], options: { normalize: true } });
  start(session, { operation: "detokenize", tokenIds: [1] });
  assert.deepEqual(sent(worker).map(JSON.parse), [
    { id: 1, operation: "embed", inputs: ["a"], options: { normalize: true } },
    { id: 2, operation: "detokenize", tokenIds: [1] },
  ]);
});

test("everything an event says reaches the run", async () => {
  const { session, worker } = await openSession();
  const { told } = start(session, { operation: "chat", messages: [], options: {} });
  const batch = {
    text: "",
    tokenIds: [],
    reasoning: "hm",
    toolCalls: [{ index: 0, arguments: "{" }],
    logprobs: [],
  };
  worker.say(
    { type: "accepted", id: 1, options: { maxTokens: 1 }, promptTokens: 3 },
    { type: "tokens", id: 1, ...batch },
    { type: "done", id: 1, result: { text: "", toolCalls: [], finishReason: "tool_calls" } },
    { type: "tokens", id: 1, text: "late", tokenIds: [] },
  );
  const origin = { endpoint: "model", requestId: 1, reasons: [...CHOICE.reasons, "Kept in memory."] };
  assert.deepEqual(told, [
    ["accept", { options: { maxTokens: 1 }, promptTokens: 3 }],
    ["push", batch],
    ["done", { text: "", toolCalls: [], finishReason: "tool_calls", ...origin }],
  ]);
});

test("a request that cannot be written is refused and not sent", async () => {
  const { session, worker } = await openSession();
  const request = { operation: "query", prompt: "", options: { seed: 1n } };
  assert.throws(() => start(session, request), { code: "invalid_option" });
  assert.deepEqual(sent(worker), []);
});

test("a cancel is sent while the request runs, and not afterwards", async () => {
  const { session, worker } = await openSession();
  const { cancel } = start(session, { operation: "query", prompt: "", options: {} });
  cancel();
  worker.say({ type: "done", id: 1, result: {} });
  cancel();
  assert.deepEqual(
    worker.commands.filter(({ type }) => type === "cancel"),
    [{ type: "cancel", id: 1 }],
  );
});
