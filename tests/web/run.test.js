// What a run promises to its reader, whoever feeds it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { HeadraceError } from "../../web/errors.js";
import { Run } from "../../web/run.js";

const RESULT = Object.freeze({ text: "ab", finishReason: "stop" });
const FAILURE = new HeadraceError("context_overflow", "Too long.");

/** A run and the endpoint's side of it. @param {AbortSignal} [signal] */
function startRun(signal) {
  const side = { cancels: 0, feed: /** @type {any} */ (null) };
  const run = new Run((feed) => {
    side.feed = feed;
    return () => side.cancels++;
  }, signal);
  return { run, side };
}

/** @param {Run} run */
async function read(run) {
  const texts = [];
  for await (const batch of run.tokens) texts.push(batch.text);
  return texts;
}

/**
 * Node's exit code for a script that fails a run: 1 if the rejection was handled by nobody. A process of its
 * own, because the test runner takes unhandled rejections for itself.
 * @param {string} script
 */
function exitCode(script) {
  const source = `
    import { Run } from ${JSON.stringify(new URL("../../web/run.js", import.meta.url).href)};
    let feed;
    const run = new Run((given) => ((feed = given), () => {}));
    ${script}`;
  return spawnSync(process.execPath, ["--input-type=module", "--eval", source]).status;
}

test("tokens come in order, before and after the reader starts, and the response follows", async () => {
  const { run, side } = startRun();
  side.feed.push({ text: "a", tokenIds: [1] });
  const reading = read(run);
  await sleep(1);
  side.feed.push({ text: "b", tokenIds: [2] });
  side.feed.push({ text: "c", tokenIds: [3] });
  await sleep(1);
  side.feed.done(RESULT);
  assert.deepEqual(await reading, ["a", "b", "c"]);
  assert.equal(await run.response, RESULT);
  assert.equal(side.cancels, 0);
  assert.deepEqual(await read(run), ["a", "b", "c"], "a second reader starts from the first batch");
});

test("nobody has to read the tokens", async () => {
  const { run, side } = startRun();
  for (let count = 0; count < 1000; count++) side.feed.push({ text: "x", tokenIds: [count] });
  side.feed.done(RESULT);
  assert.equal(await run.response, RESULT);
});

test("the acceptance is kept", () => {
  const { run, side } = startRun();
  assert.equal(run.accepted, null);
  side.feed.accept({ options: { maxTokens: 8 }, promptTokens: 3 });
  assert.deepEqual(run.accepted, { options: { maxTokens: 8 }, promptTokens: 3 });
});

test("leaving the loop cancels the run, once; what comes later harms nobody", async () => {
  const { run, side } = startRun();
  side.feed.push({ text: "a", tokenIds: [1] });
  for await (const batch of run.tokens) {
    assert.equal(batch.text, "a");
    break;
  }
  assert.equal(side.cancels, 1);
  side.feed.push({ text: "late", tokenIds: [2] });
  side.feed.done({ ...RESULT, finishReason: "cancelled" });
  assert.equal((await run.response).finishReason, "cancelled");
});

test("a consumer that throws cancels the run and gets its own error", async () => {
  const { run, side } = startRun();
  side.feed.push({ text: "a", tokenIds: [1] });
  await assert.rejects(async () => {
    for await (const _ of run.tokens) throw new RangeError("mine");
  }, RangeError);
  assert.equal(side.cancels, 1);
});

test("a consumer that stops reading stalls neither its run nor another", async () => {
  const first = startRun();
  const second = startRun();
  first.side.feed.push({ text: "a", tokenIds: [1] });
  const iterator = first.run.tokens[Symbol.asyncIterator]();
  await iterator.next();
  first.side.feed.push({ text: "b", tokenIds: [2] });
  first.side.feed.done(RESULT);
  second.side.feed.push({ text: "c", tokenIds: [3] });
  second.side.feed.done(RESULT);
  assert.equal(await first.run.response, RESULT);
  assert.deepEqual(await read(second.run), ["c"]);
});

test("cancel works twice, and does nothing after the end", () => {
  const { run, side } = startRun();
  run.cancel();
  run.cancel();
  assert.equal(side.cancels, 2, "the endpoint ignores the second");
  side.feed.done(RESULT);
  run.cancel();
  assert.equal(side.cancels, 2);
});

test("a signal cancels, before the start and later, and is let go at the end", async () => {
  const aborted = startRun(AbortSignal.abort());
  assert.equal(aborted.side.cancels, 1);

  const controller = new AbortController();
  const { side } = startRun(controller.signal);
  assert.equal(side.cancels, 0);
  controller.abort();
  assert.equal(side.cancels, 1);

  const late = new AbortController();
  const ended = startRun(late.signal);
  ended.side.feed.done(RESULT);
  late.abort();
  assert.equal(ended.side.cancels, 0);
});

test("a failure reaches the reader after the tokens, and the response", async () => {
  const { run, side } = startRun();
  side.feed.push({ text: "a", tokenIds: [1] });
  side.feed.fail(FAILURE);
  const texts = [];
  await assert.rejects(async () => {
    for await (const batch of run.tokens) texts.push(batch.text);
  }, FAILURE);
  assert.deepEqual(texts, ["a"]);
  await assert.rejects(run.response, FAILURE);
  assert.equal(side.cancels, 0);
});

test("a failure told by the tokens is no unhandled rejection", () => {
  assert.equal(
    exitCode(`
    setTimeout(() => feed.fail(new Error("x")), 1);
    try { for await (const batch of run.tokens); } catch { setTimeout(() => {}, 20); }`),
    0,
  );
});

test("a failure told to nobody is one", () => {
  assert.equal(exitCode('feed.fail(new Error("x"));'), 1);
});

test("a run may fail while it is being started", async () => {
  const run = new Run((feed) => {
    feed.fail(FAILURE);
    return () => assert.fail("nothing to cancel");
  }, AbortSignal.abort());
  await assert.rejects(run.response, FAILURE);
});

test("only the first end counts", async () => {
  const { run, side } = startRun();
  side.feed.done(RESULT);
  side.feed.fail(FAILURE);
  side.feed.push({ text: "late", tokenIds: [1] });
  assert.equal(await run.response, RESULT);
  assert.deepEqual(await read(run), []);
});
