// A GGUF header is read, wanted further or refused; nothing in it makes the reader wait or run over.
//
// That both twins judge alike, whole models and seeded damage, is tested in tests/python/test_models_gguf.py.

import assert from "node:assert/strict";
import { test } from "node:test";

import { headerSpans, parseHeader } from "../../web/models/gguf_header.js";
import { smallGguf } from "./small_gguf.js";

test("a header says where everything lies", () => {
  const bytes = smallGguf([8, 16]);
  const header = parseHeader(bytes, "x");
  assert.equal(header.metadata.get("general.architecture"), "llama");
  assert.deepEqual(header.metadata.get("tokens"), { type: 8, length: 2 });
  assert.deepEqual(header.tensors[1], { name: "t1", shape: [16], type: 0, offset: 32, bytes: 64 });
  assert.equal(header.dataEnd, bytes.length);
  const { metadata } = headerSpans(bytes, "x");
  assert.deepEqual(
    [metadata[0].start, metadata.at(-1).end],
    header.metadataBytes,
    "the entries fill their part of the file",
  );
});

test("every shorter start wants more, until the last tensor is declared", () => {
  const bytes = smallGguf([8]);
  const whole = parseHeader(bytes, "x");
  const known = [...bytes.keys()].map((length) => parseHeader(bytes.subarray(0, length), "x"));
  const first = known.findIndex((header) => header !== null);
  assert.ok(first > 100 && first <= whole.dataStart);
  assert.ok(known.slice(first).every((header) => header.dataEnd === whole.dataEnd));
});

test("a view of shared memory is read like any other", () => {
  const bytes = smallGguf([8]);
  const shared = new Uint8Array(new SharedArrayBuffer(bytes.length));
  shared.set(bytes);
  assert.deepEqual(parseHeader(shared, "x"), parseHeader(bytes, "x"));
});

test("case F6: what cannot lie in the file is refused at once", () => {
  const bytes = smallGguf([8]);
  assert.equal(parseHeader(bytes.subarray(0, 60), "x", bytes.length), null);
  assert.throws(() => parseHeader(bytes.subarray(0, 60), "x", 60), { code: "model_truncated" });
});

test("fuzz: damage ends in a header, null or model_invalid, soon", () => {
  const whole = smallGguf([8, 16, 24]);
  let state = 1;
  const random = (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const seen = { header: 0, more: 0, refused: 0 };
  const begin = performance.now();
  for (let i = 0; i < 20_000; i++) {
    const bytes = whole.slice();
    for (let n = random(4); n >= 0; n--) bytes[random(bytes.length)] = random(3) ? random(256) : 255;
    try {
      seen[parseHeader(bytes, "x") === null ? "more" : "header"]++;
    } catch (error) {
      assert.equal(error.code, "model_invalid");
      seen.refused++;
    }
  }
  assert.ok(Math.min(...Object.values(seen)) > 100, JSON.stringify(seen));
  assert.ok(performance.now() - begin < 30_000);
});
