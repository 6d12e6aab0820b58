// Requests as JSON: what survives, what is mended, what is refused.

import assert from "node:assert/strict";
import { test } from "node:test";

import { writeRequest } from "../../web/endpoints/request_json.js";

/** @param {any} options */
function write(options) {
  return writeRequest({ id: 1, operation: "query", prompt: "", options });
}

test("the order of a schema's properties survives", () => {
  const schema = { properties: { zebra: {}, apple: {}, Mango: {} }, required: ["apple"] };
  assert.ok(write({ responseFormat: { schema } }).includes(JSON.stringify(schema)));
});

test("half a character is replaced, in names as in texts; a backslash is not one", () => {
  const strings = ["\ud83d", "a\udc00b", "😀", "\\ud83d", "\\\\ud83d", '"\\"', "\n\u0001\\u00e9", "\ufeff"];
  const mended = ["\ufffd", "a\ufffdb", ...strings.slice(2)];
  const json = write({ stop: strings, "\ud83d": 1 });
  assert.doesNotMatch(json.replaceAll("\\\\", ""), /\\ud/, "which parsers other than this one refuse");
  assert.deepEqual(JSON.parse(json).options, { stop: mended, "\ufffd": 1 });
});

const CIRCLE = /** @type {any[]} */ ([]);
CIRCLE.push(CIRCLE);

/** @param {number} levels */
function nested(levels) {
  let value = /** @type {any[]} */ ([]);
  for (let level = 1; level < levels; level++) value = [value];
  return value;
}

const UNWRITABLE = [
  ["invalid_option", { grammar: () => "" }],
  ["invalid_option", { seed: 1n }],
  ["invalid_option", { stop: Symbol("x") }],
  ["invalid_request", { stop: [1n] }],
  ["invalid_request", { tools: [{ execute: () => 1 }] }],
  ["invalid_request", { stop: [Symbol("x")] }],
  ["invalid_request", { stop: CIRCLE }],
  ["invalid_request", { stop: nested(255) }],
  ["invalid_request", { stop: nested(100_000) }],
];

for (const [code, options] of UNWRITABLE) {
  test(`what JSON has no form for is refused: ${Object.keys(options)}, ${code}`, () => {
    assert.throws(
      () => write(options),
      (error) => {
        assert.equal(error.code, code);
        assert.doesNotMatch(error.message, /\n/);
        return true;
      },
    );
  });
}

test("deep but not endless options are for the engine to judge", () => {
  assert.deepEqual(JSON.parse(write({ stop: nested(254) })).options.stop, nested(254));
});
