// An engine that is lost is started again and goes on with what is unfinished, twice at most, on fake workers.
// The real thing: tests/browser/test_recovery.py.

import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

import { HeadraceError } from "../../web/errors.js";
import { CHOICE, openSession, READY, sent, start } from "./fake_session.js";

const LOST = { type: "engine_failed", error: { code: "device_lost", message: "it went away", detail: { at: 1 } } };
const QUERY = { operation: "query", prompt: "Hi", options: { temperature: 1 } };
const ACCEPTED = { type: "accepted", id: 1, options: { seed: 7, maxTokens: 9 }, promptTokens: 3 };
const RESULT = { text: "ab", tokenIds: [1, 2], finishReason: "stop" };
const BASE = [...CHOICE.reasons, "Kept in memory."];

beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => mock.timers.reset());

/** The next worker, once the pause before it is over. */
function nextWorker(workers) {
  const before = workers.length;
  mock.timers.tick(1000);
  assert.equal(workers.length, before + 1, "one more worker was started");
  return workers.at(-1);
}

/** What a feed was told, by kind. */
const only = (told, kind) => told.filter(([name]) => name === kind).map(([, value]) => value);

test("a stream goes on where it was: what was told is sent along, and nothing is told twice", async () => {
  const { session, worker, workers, progress } = await openSession();
  const { told } = start(session, QUERY);
  worker.say(ACCEPTED, { type: "tokens", id: 1, text: "a", tokenIds: [1] });
  worker.say(LOST);
  assert.equal(worker.isTerminated, true);
  worker.say({ type: "tokens", id: 1, text: "late", tokenIds: [9] });

  const second = nextWorker(workers);
  assert.deepEqual(
    { ...second.commands[0], lock: "" },
    { ...worker.commands[0], lock: "" },
    "the same is opened",
  );
  assert.notEqual(second.commands[0].lock, worker.commands[0].lock);
  second.say({ type: "progress", phase: "load", loaded: 0, total: 1 });
  assert.deepEqual(progress.at(-1), { phase: "load", loaded: 0, total: 1 });
  assert.deepEqual(sent(second), [], "nothing is asked of an engine that is not ready");
  second.load();

  const [{ replay, ...request }] = sent(second).map(JSON.parse);
  assert.deepEqual(request, { id: 1, ...QUERY });
  const { elapsedMs, ...answer } = replay;
  assert.ok(elapsedMs >= 0 && elapsedMs < 60_000);
  assert.deepEqual(answer, { tokenIds: [1], text: "a", reasoning: "", toolCalls: [], seed: 7 });

  second.say(ACCEPTED, { type: "tokens", id: 1, text: "b", tokenIds: [2] }, { type: "done", id: 1, result: RESULT });
  assert.equal(only(told, "accept").length, 1);
  assert.equal(only(told, "push").map(({ text }) => text).join(""), "ab");
  assert.deepEqual(only(told, "fail"), []);
  const reasons = [...BASE, "The engine was restarted once: it went away."];
  assert.deepEqual(only(told, "done"), [{ ...RESULT, endpoint: "model", requestId: 1, reasons }]);
  assert.deepEqual(session.capabilities().reasons, reasons);
});

test("a chat's parts and logprobs are sent along, whatever pieces they came in", async () => {
  const { session, worker, workers } = await openSession();
  start(session, { operation: "chat", messages: [], options: { logprobs: true } });
  const logprob = { tokenId: 1, text: "a", logprob: -1, top: [] };
  worker.say(
    { type: "tokens", id: 1, text: "", tokenIds: [1], reasoning: "h", logprobs: [logprob] },
    {
      ...{ type: "tokens", id: 1, text: "", tokenIds: [2], reasoning: "m", logprobs: [logprob] },
      toolCalls: [
        { index: 0, id: "x", name: "f", arguments: "{" },
        { index: 0, arguments: "}" },
        { index: 1, id: "y", name: "g", arguments: "" },
      ],
    },
  );
  worker.crash();
  const second = nextWorker(workers);
  second.load();
  const [{ replay }] = sent(second).map(JSON.parse);
  assert.equal(replay.reasoning, "hm");
  assert.deepEqual(replay.toolCalls, [
    { id: "x", name: "f", arguments: "{}" },
    { id: "y", name: "g", arguments: "" },
  ]);
  assert.deepEqual(replay.logprobs, [logprob, logprob]);
});

test("what an application changes after it has asked is not asked again", async () => {
  const { session, worker, workers } = await openSession();
  const messages = [{ role: "user", content: "first" }];
  const schema = '{"b":1,"10":2,"2":3}';
  start(session, { operation: "chat", messages, options: { responseFormat: JSON.parse(schema) } });
  messages[0].content = "changed";
  worker.crash();
  const second = nextWorker(workers);
  second.load();
  assert.ok(sent(second)[0].startsWith(sent(worker)[0].slice(0, -1)), "written once");
  assert.equal(JSON.parse(sent(second)[0]).messages[0].content, "first");
});

test("other requests are asked again whole, in order, and new ones wait for the engine", async () => {
  const { session, worker, workers } = await openSession();
  start(session, { operation: "embed", inputs: ["a"], options: {} });
  start(session, { operation: "tokenize", text: "t" });
  const done = start(session, QUERY);
  worker.say({ type: "done", id: 3, result: RESULT });
  worker.crash();
  const waiting = start(session, QUERY);
  const second = nextWorker(workers);
  start(session, { operation: "metrics" });
  assert.deepEqual(sent(second), []);
  second.load();
  const [embed, tokenize, query, metrics] = sent(second).map(JSON.parse);
  assert.deepEqual(embed, { id: 1, operation: "embed", inputs: ["a"], options: {} });
  assert.deepEqual(tokenize, { id: 2, operation: "tokenize", text: "t" });
  assert.equal(query.id, 4);
  assert.deepEqual(query.replay.tokenIds, []);
  assert.deepEqual(metrics, { id: 5, operation: "metrics" });
  second.say({ type: "done", id: 4, result: RESULT });
  assert.equal(only(waiting.told, "done").length, 1);
  assert.deepEqual(only(done.told, "done")[0].reasons, BASE, "it had ended before");
});

test("requests that fail with their engine go on; one that fails by itself has failed", async () => {
  const { session, worker, workers } = await openSession();
  const own = start(session, QUERY);
  const lost = start(session, QUERY);
  worker.say(
    { type: "failed", id: 1, error: { code: "numeric_fault", message: "NaN", detail: {} } },
    { type: "failed", id: 2, error: LOST.error },
    LOST,
  );
  assert.equal(only(own.told, "fail")[0].code, "numeric_fault");
  assert.deepEqual(lost.told, []);
  const second = nextWorker(workers);
  second.load();
  assert.deepEqual(sent(second).map((text) => JSON.parse(text).id), [2]);
});

for (const how of ["crash", "fail", "fail while loading"]) {
  test(`a third loss in a row ends the endpoint: ${how}`, async () => {
    const { session, worker, workers } = await openSession();
    const { told } = start(session, QUERY);
    const lose = (/** @type {typeof worker} */ one) => (how === "crash" ? one.crash() : one.say(LOST));
    lose(worker);
    const second = nextWorker(workers);
    if (how !== "fail while loading") second.load();
    second.say({ type: "tokens", id: 1, text: "a", tokenIds: [1] });
    lose(second);
    mock.timers.tick(500);
    assert.equal(workers.length, 2, "the second restart waits a moment");
    const third = nextWorker(workers);
    if (how !== "fail while loading") third.load();
    assert.deepEqual(only(told, "fail"), []);
    lose(third);
    mock.timers.tick(10_000);
    assert.equal(workers.length, 3);

    const [error] = only(told, "fail");
    assert.ok(error instanceof HeadraceError);
    assert.equal(error.code, how === "crash" ? "worker_crashed" : "device_lost");
    assert.equal(error.detail.restarts, 2);
    assert.match(error.message, /restarted twice before, in vain$/);
    assert.throws(() => start(session, QUERY), { code: error.code });
    assert.ok(workers.every(({ isTerminated }) => isTerminated));
  });
}

test("a completed request shows that the engine works: restarts are counted anew", async () => {
  const { session, workers } = await openSession();
  for (let round = 1; round <= 4; round++) {
    workers.at(-1).crash();
    const worker = nextWorker(workers);
    worker.load();
    const { told } = start(session, QUERY);
    worker.say({ type: "done", id: round, result: RESULT });
    assert.deepEqual(only(told, "done")[0].reasons, BASE, "it was not there when the engine was lost");
  }
  assert.match(session.capabilities().reasons.at(-1), /restarted 4 times, the last time because: .*boom\.$/);
});

test("a request that takes every engine with it fails alone, while others are completed", async () => {
  const { session, workers } = await openSession();
  const poison = start(session, QUERY);
  for (let round = 1; round <= 3; round++) {
    const other = start(session, QUERY);
    const worker = workers.at(-1);
    worker.say({ type: "done", id: 1 + round, result: RESULT });
    worker.say(LOST);
    assert.equal(only(other.told, "done").length, 1);
    nextWorker(workers).load();
  }
  assert.equal(only(poison.told, "fail")[0].detail.restarts, 2);
  assert.deepEqual(sent(workers.at(-1)), []);
  start(session, QUERY);
  assert.equal(sent(workers.at(-1)).length, 1, "the endpoint lives");
});

test("errors of the first load, and those that would come again, restart nothing", async () => {
  const { session, worker, workers } = await openSession();
  const { told } = start(session, QUERY);
  worker.say({ type: "engine_failed", error: { code: "kernel_missing", message: "no", detail: {} } });
  mock.timers.tick(10_000);
  assert.equal(workers.length, 1);
  assert.deepEqual(only(told, "fail")[0].toWire(), { code: "kernel_missing", message: "no", detail: {} });

  const opening = openSession({ ready: LOST });
  await assert.rejects(opening, (error) => {
    assert.deepEqual(error.toWire(), LOST.error);
    return true;
  });
});

const GPU = { adapter: { info: {} }, powerPreference: null, required: false };
const ON_GPU = { ...READY, backend: "webgpu", gpu: { layers: 1 } };

test("a GPU that is lost three times is given up for the CPU, and the answer goes on", async () => {
  const choice = { ...CHOICE, backend: "webgpu", gpu: GPU, reasons: ["WebGPU: it is there.", "1 thread."] };
  const { session, worker, workers } = await openSession({ choice, ready: ON_GPU });
  const { told } = start(session, QUERY);
  worker.say({ type: "tokens", id: 1, text: "a", tokenIds: [1] }, LOST);
  for (const _ of [1, 2]) {
    const next = nextWorker(workers);
    assert.ok(next.commands[0].gpu);
    next.load(ON_GPU);
    next.say(LOST);
  }
  const last = nextWorker(workers);
  assert.equal(last.commands[0].gpu, null);
  last.load();
  assert.deepEqual(JSON.parse(sent(last)[0]).replay.tokenIds, [1]);
  last.say({ type: "done", id: 1, result: RESULT });
  const { backend, reasons } = session.capabilities();
  assert.equal(backend, "cpu");
  const why = "CPU: WebGPU failed 3 times in a row, the last time because: it went away.";
  assert.deepEqual(reasons.slice(0, 2), [why, "1 thread."]);
  assert.deepEqual(only(told, "done")[0].reasons.slice(0, 2), [why, "1 thread."]);

  // The CPU has its own restarts.
  start(session, QUERY);
  last.crash();
  nextWorker(workers).load();
  assert.equal(sent(workers.at(-1)).length, 1);
});

for (const [what, gpu, ready] of [
  ["asked for by name", { ...GPU, required: true }, ON_GPU],
  ["that the worker had left already", GPU, READY],
]) {
  test(`a GPU ${what} is not given up for the CPU`, async () => {
    const choice = { ...CHOICE, backend: "webgpu", gpu };
    const { session, worker, workers } = await openSession({ choice, ready });
    const { told } = start(session, QUERY);
    worker.say(LOST);
    for (const _ of [1, 2]) {
      const next = nextWorker(workers);
      next.load(ready);
      next.say(LOST);
    }
    assert.equal(only(told, "fail")[0].code, "device_lost");
    mock.timers.tick(10_000);
    assert.equal(workers.length, 3);
  });
}

test("a cancel while there is no engine ends the request at once, with all that was told", async () => {
  const { session, worker, workers } = await openSession();
  const answer = start(session, QUERY);
  const embed = start(session, { operation: "embed", inputs: ["a"], options: {} });
  const before = start(session, QUERY);
  worker.say(ACCEPTED, { type: "tokens", id: 1, text: "a", tokenIds: [1] });
  before.cancel();
  worker.crash();
  answer.cancel();
  answer.cancel();
  embed.cancel();
  const [result] = only(answer.told, "done");
  assert.equal(result.finishReason, "cancelled");
  assert.deepEqual([result.text, result.tokenIds], ["a", [1]]);
  assert.deepEqual(result.usage, { inputTokens: 3, outputTokens: 1, cachedTokens: 0 });
  assert.deepEqual([result.stats.replayed, result.stats.backend, result.stats.threads], [1, "cpu", 1]);
  assert.equal(only(embed.told, "fail")[0].code, "cancelled");
  assert.equal(only(before.told, "done")[0].finishReason, "cancelled", "it was cancelled before");
  const second = nextWorker(workers);
  second.load();
  assert.deepEqual(sent(second), []);
  assert.deepEqual(second.commands.map(({ type }) => type), ["open"]);
});

test("what was called when it was cancelled is told if it is whole", async () => {
  const { session, worker } = await openSession();
  const { told, cancel } = start(session, { operation: "chat", messages: [], options: {} });
  const toolCalls = ['{"a":1}', '{"a', "[]"].map((text, index) => ({ index, id: `${index}`, name: "f", arguments: text }));
  worker.say({ type: "tokens", id: 1, text: "", tokenIds: [1], reasoning: "hm", toolCalls });
  worker.crash();
  cancel();
  const [{ reasoning, toolCalls: calls }] = only(told, "done");
  assert.deepEqual([reasoning, calls], ["hm", [{ id: "0", name: "f", arguments: '{"a":1}' }]]);
});

test("a request that was cancelled shows nothing of the engine", async () => {
  const { session, workers } = await openSession();
  for (const id of [1, 2, 3]) {
    const { cancel } = start(session, QUERY);
    cancel();
    workers.at(-1).say({ type: "done", id, result: { ...RESULT, finishReason: "cancelled" } });
    workers.at(-1).crash();
    if (id < 3) nextWorker(workers).load();
  }
  assert.throws(() => start(session, QUERY), { code: "worker_crashed" });
});

for (const when of ["before the next worker", "while it loads"]) {
  test(`a session that is closed ${when} ends at once, and for good`, async () => {
    const { session, worker, workers } = await openSession();
    const { told } = start(session, QUERY);
    worker.crash();
    if (when === "while it loads") nextWorker(workers);
    await session.close();
    await session.close();
    assert.equal(only(told, "fail")[0].code, "engine_closed");
    const count = workers.length;
    mock.timers.tick(10_000);
    assert.equal(workers.length, count);
    assert.ok(workers.every(({ isTerminated }) => isTerminated));
    assert.throws(() => start(session, QUERY), { code: "engine_closed" });
  });
}

test("a worker that cannot be started counts like one that is lost", async () => {
  const { session, worker, workers } = await openSession();
  const { told } = start(session, QUERY);
  const Working = globalThis.Worker;
  globalThis.Worker = /** @type {any} */ (
    class {
      constructor() {
        throw new TypeError("no workers today");
      }
    }
  );
  worker.crash();
  mock.timers.tick(0);
  globalThis.Worker = Working;
  const second = nextWorker(workers);
  second.load();
  assert.equal(sent(second).length, 1);
  assert.deepEqual(only(told, "fail"), []);
});
