// Whether there is room, and who makes it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { availableBytes, chooseVictims, evictable, storageFull } from "../../web/models/quota.js";

/** @param {object} [figures] */
const figures = (figures) => ({
  usedBytes: 60,
  quotaBytes: 100,
  modelBytes: 50,
  limitBytes: null,
  ...figures,
});

test("room is what quota and limit both leave", () => {
  assert.equal(availableBytes(figures()), 40);
  assert.equal(availableBytes(figures({ limitBytes: 70 })), 20);
  assert.equal(availableBytes(figures({ limitBytes: 1000 })), 40);
  assert.equal(availableBytes(figures({ limitBytes: 10 })), 0);
  assert.equal(availableBytes(figures({ usedBytes: 200 })), 0);
  assert.equal(availableBytes(figures({ quotaBytes: null })), Infinity);
});

/** @param {string} id @param {number} used @param {object} [more] */
const model = (id, used, more) =>
  /** @type {any} */ ({
    id,
    name: id,
    size: 10,
    usedAt: new Date(used).toISOString(),
    pinned: false,
    inUse: false,
    projector: null,
    ...more,
  });

test("the least recently used go first; never what is pinned, in use, linked or wanted", () => {
  const models = [
    model("new", 5),
    model("old", 1),
    model("pinned", 0, { pinned: true }),
    model("used", 0, { inUse: true }),
    model("owner", 3, { projector: "projector" }),
    model("projector", 0),
    model("wanted", 0),
  ];
  const order = evictable(models, ["wanted"]).map(({ id }) => id);
  assert.deepEqual(order, ["old", "owner", "new"]);
});

test("as few as are needed, and none when all together are too small", () => {
  const candidates = [model("a", 1), model("b", 2), model("c", 3)];
  const victims = (/** @type {number} */ missing) => chooseVictims(candidates, missing)?.map(({ id }) => id);
  assert.deepEqual(
    [victims(0), victims(10), victims(11), victims(30)],
    [[], ["a"], ["a", "b"], ["a", "b", "c"]],
  );
  assert.equal(victims(31), undefined);
});

test("the error says how much is missing, who could go, and what to do without (case D6)", () => {
  const error = storageFull("x.gguf", 50e6, figures({ usedBytes: 60e6, quotaBytes: 100e6 }), [model("a", 1)]);
  assert.equal(error.code, "storage_full");
  assert.deepEqual(error.detail, {
    neededBytes: 50e6,
    availableBytes: 40e6,
    missingBytes: 10e6,
    evictable: [{ id: "a", name: "a", size: 10 }],
  });
  assert.match(error.message, /x\.gguf: 10\.0 MB of 50\.0 MB are missing within the browser's quota/);
  assert.match(error.message, /"memory"/);
  const limited = storageFull("x", 10, figures({ limitBytes: 55 }), []);
  assert.match(limited.message, /the models' limit/);
  assert.doesNotMatch(limited.message, /evict/);
});
