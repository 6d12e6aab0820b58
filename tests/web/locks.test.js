// Locks by name keep their order and their promises, with Web Locks and with what stands in for them.
//
// Counterpart: tests/browser/test_storage.py has what only a browser can show: the lock of a worker that ends.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import * as webLocks from "../../web/models/locks.js";

const native = navigator.locks;
Object.defineProperty(navigator, "locks", { value: undefined, configurable: true });
const inProcess = await import(`../../web/models/${"locks.js"}?without-web-locks`);
// The choice is made with the first lock.
await inProcess.withLock("first", {}, async () => {});
Object.defineProperty(navigator, "locks", { value: native, configurable: true });

test("the stand-in is what it is taken for", async () => {
  await inProcess.withLock("own", {}, async () => {
    assert.equal(await inProcess.lockIsHeld("own"), true);
    assert.equal(await webLocks.lockIsHeld("own"), false);
  });
});

for (const [kind, { withLock, holdLock, lockIsHeld }] of Object.entries({ webLocks, inProcess })) {
  test(`${kind}: one at a time, in the order of asking`, async () => {
    const log = /** @type {string[]} */ ([]);
    const work = (/** @type {string} */ name) => async () => {
      log.push(`${name} begins`);
      await sleep(5);
      log.push(`${name} ends`);
      return name;
    };
    const all = ["a", "b", "c"].map((name) => withLock("order", {}, work(name)));
    assert.deepEqual(await Promise.all(all), ["a", "b", "c"]);
    assert.deepEqual(log, ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
    await free("order");
  });

  test(`${kind}: names are apart`, async () => {
    const release = await holdLock("one");
    await withLock("two", { wait: false }, async () => {});
    release();
  });

  test(`${kind}: who shares, shares, but not before one who asked for it alone`, async () => {
    const first = await holdLock("shared", { shared: true });
    const second = await holdLock("shared", { shared: true, wait: false });
    const log = /** @type {string[]} */ ([]);
    const alone = withLock("shared", {}, async () => log.push("alone"));
    const late = withLock("shared", { shared: true }, async () => log.push("late"));
    await assert.rejects(holdLock("shared", { shared: true, wait: false }), { code: "model_in_use" });
    await sleep(5);
    first();
    await sleep(5);
    assert.deepEqual(log, []);
    second();
    await Promise.all([alone, late]);
    assert.deepEqual(log, ["alone", "late"]);
  });

  test(`${kind}: who does not wait is told`, async () => {
    const release = await holdLock("taken");
    for (const shared of [true, false]) {
      const refused = withLock("taken", { wait: false, shared }, () => assert.fail("it ran"));
      await assert.rejects(refused, {
        name: "HeadraceError",
        code: "model_in_use",
        detail: { lock: "taken" },
      });
    }
    assert.equal(await lockIsHeld("taken"), true);
    release();
    release();
    await free("taken");
    assert.equal(await withLock("taken", { wait: false }, () => 7), 7);
  });

  test(`${kind}: waiting can be aborted, holding cannot`, async () => {
    const controller = new AbortController();
    const release = await holdLock("aborted", { signal: controller.signal });
    const other = new AbortController();
    const waiting = holdLock("aborted", { signal: other.signal });
    const behind = withLock("aborted", {}, () => "behind");
    await sleep(5);
    other.abort(new Error("enough"));
    await assert.rejects(waiting, { code: "cancelled", cause: other.signal.reason });
    controller.abort();
    await sleep(5);
    assert.equal(await lockIsHeld("aborted"), true);
    release();
    assert.equal(await behind, "behind");
    for (const wait of [true, false]) {
      await assert.rejects(holdLock("aborted", { wait, signal: other.signal }), { code: "cancelled" });
    }
    await free("aborted");
  });

  // Node's own Web Locks leave those behind waiting, against the standard; browsers do not.
  const skip = kind === "webLocks";
  test(`${kind}: an aborted wait for it alone lets those behind share`, { skip }, async () => {
    const release = await holdLock("gone", { shared: true });
    const controller = new AbortController();
    const alone = holdLock("gone", { signal: controller.signal });
    const behind = withLock("gone", { shared: true }, () => "behind");
    await sleep(5);
    controller.abort();
    await assert.rejects(alone, { code: "cancelled" });
    assert.equal(await behind, "behind");
    release();
  });

  test(`${kind}: a failing action releases`, async () => {
    const failure = new Error("no");
    await assert.rejects(
      withLock("failing", {}, async () => {
        throw failure;
      }),
      (error) => error === failure,
    );
    await free("failing");
  });

  /** A lock is free a moment after its release. */
  async function free(/** @type {string} */ name) {
    await withLock(name, {}, () => {});
    for (let tries = 0; (await lockIsHeld(name)) && tries < 100; tries += 1) await sleep(1);
    assert.equal(await lockIsHeld(name), false);
  }
}
