// Progress of many files as one: figures, rate, how often it speaks.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ProgressMeter } from "../../web/models/progress.js";

/** A meter on a clock of the test's own. @param {(number | null)[]} totals */
function meter(totals) {
  /** @type {import("../../web/models/types.js").StoreProgress[]} */
  const told = [];
  const clock = { now: 0 };
  const report = (/** @type {any} */ progress) => told.push(progress);
  return { told, clock, meter: new ProgressMeter("download", totals, report, () => clock.now) };
}

test("files are added up; what is there from before counts, but not for the rate", () => {
  const { told, clock, meter: one } = meter([1000, 1000]);
  one.update(0, 1000, 1000);
  clock.now = 1000;
  one.update(1, 500, 1000);
  clock.now = 2000;
  one.update(1, 700, 1000);
  assert.deepEqual(told, [
    { phase: "download", loaded: 1000, total: 2000, bytesPerSecond: null, secondsLeft: null },
    { phase: "download", loaded: 1500, total: 2000, bytesPerSecond: 0, secondsLeft: null },
    { phase: "download", loaded: 1700, total: 2000, bytesPerSecond: 100, secondsLeft: 3 },
  ]);
});

test("the rate is that of the last five seconds", () => {
  const { told, clock, meter: one } = meter([1e6]);
  one.update(0, 0, 1e6);
  for (let loaded = 0; clock.now < 10_000;) {
    clock.now += 100;
    loaded += clock.now <= 5000 ? 1000 : 100;
    one.update(0, loaded, 1e6);
  }
  assert.ok(Math.abs((told.at(-1)?.bytesPerSecond ?? 0) - 1000) < 50, JSON.stringify(told.at(-1)));
});

test("at most ten times a second, but for the end", () => {
  const { told, clock, meter: one } = meter([1000]);
  for (let loaded = 0; loaded < 1000; loaded++) {
    clock.now += 1;
    one.update(0, loaded, 1000);
  }
  assert.ok(told.length <= 11, String(told.length));
  one.update(0, 1000, 1000);
  assert.equal(told.at(-1)?.loaded, 1000);
});

test("an unknown total is null, never NaN, and known at the end (case D3)", () => {
  const { told, clock, meter: one } = meter([null, 10]);
  one.update(0, 5, null);
  clock.now = 1000;
  one.update(0, 8, null);
  one.finish();
  assert.deepEqual(
    told.map(({ loaded, total, secondsLeft }) => [loaded, total, secondsLeft]),
    [
      [5, null, null],
      [8, null, null],
      [8, 8, 0],
    ],
  );
});

test("a download that starts over goes back, and its rate is not negative", () => {
  const { told, clock, meter: one } = meter([100]);
  one.update(0, 0, 100);
  clock.now = 1000;
  one.update(0, 80, 100);
  clock.now = 2000;
  one.update(0, 0, 100);
  assert.deepEqual([told.at(-1)?.loaded, told.at(-1)?.bytesPerSecond], [0, 40]);
});

test("the last bytes are told, also when nothing follows them", async () => {
  const { told, meter: one } = meter([1000]);
  one.update(0, 0, 1000);
  one.update(0, 400, 1000);
  one.update(0, 500, 1000);
  assert.deepEqual(
    told.map(({ loaded }) => loaded),
    [0],
  );
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.deepEqual(
    told.map(({ loaded }) => loaded),
    [0, 500],
  );
  one.update(0, 600, 1000);
  one.stop();
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.equal(told.length, 2, "nothing after the end");
});
