// Which pieces a file is cut into, and which files are one model.
//
// That the pieces are the same bytes as Python's, and load, is tested in tests/python/test_models_split.py.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseHeader } from "../../web/models/gguf_header.js";
import { orderShards, planPieces, requireSeparate, shardOf } from "../../web/models/split.js";
import { smallGguf } from "./small_gguf.js";

/** Every tensor in a shard of its own. */
const TINY = { maxWholeBytes: 0, shardBytes: 1 };

/** @returns {Uint8Array[]} a shard for each tensor */
function shardsOf(bytes) {
  return planPieces(parseHeader(bytes, "x"), bytes, bytes.length, TINY).map(({ header, start, end }) =>
    Uint8Array.of(...header, ...bytes.subarray(start, end)),
  );
}

const trio = () =>
  shardsOf(smallGguf([8, 16, 24])).map((bytes, i) => ({
    name: `m-0000${i + 1}-of-00003.gguf`,
    header: parseHeader(bytes, "x"),
    bytes,
  }));

test("pieces follow each other, and each is a GGUF file that ends where it should", () => {
  const bytes = smallGguf([8, 16, 24]);
  const header = parseHeader(bytes, "x");
  const pieces = planPieces(header, bytes, bytes.length, { maxWholeBytes: 0, shardBytes: 460 });
  assert.equal(pieces.length, 2);
  assert.equal(pieces[0].start, header.dataStart);
  assert.equal(pieces[1].start, pieces[0].end);
  assert.equal(pieces[1].end, bytes.length);
  const tensors = pieces.flatMap((piece) => {
    const own = parseHeader(piece.header, "shard");
    assert.equal(own.dataStart, piece.header.length);
    assert.ok(piece.header.length + piece.end - piece.start <= 460);
    return own.tensors.map(({ name, offset }) => [name, piece.start + offset - header.dataStart]);
  });
  assert.deepEqual(tensors, header.tensors.map(({ name, offset }) => [name, offset]));
});

test("planning changes nothing in the bytes it is given, a Buffer of Node's included", () => {
  const bytes = Buffer.from(smallGguf([8, 16]));
  const before = Buffer.from(bytes).toString("hex");
  const pieces = planPieces(parseHeader(bytes, "x"), bytes, bytes.length, TINY);
  assert.equal(bytes.toString("hex"), before);
  assert.equal(parseHeader(pieces[1].header, "x").tensors[0].offset, 0);
});

test("what stays whole", () => {
  const bytes = smallGguf([8, 16]);
  const header = parseHeader(bytes, "x");
  assert.deepEqual(planPieces(header, bytes, bytes.length), [{ header: null, start: 0, end: bytes.length }]);
  assert.deepEqual(planPieces(header, bytes, null, TINY), [{ header: null, start: 0, end: null }]);
  const [shard] = trio();
  assert.equal(planPieces(shard.header, shard.bytes, shard.bytes.length, TINY).length, 1);
  assert.throws(() => planPieces(header, bytes, bytes.length - 1), { code: "model_truncated" });
});

test("case F10: shards in the order 3, 1, 2, also as unnamed Blobs", () => {
  const [one, two, three] = trio().map(({ header }) => ({ name: "the blob", header }));
  assert.deepEqual(orderShards([three, one, two]), [1, 2, 0]);
  assert.deepEqual(shardOf(two.header), { index: 2, count: 3 });
});

test("case F11: one of three shards says which others are needed", () => {
  assert.throws(() => orderShards([trio()[1]]), {
    code: "invalid_request",
    message:
      "m-00002-of-00003.gguf is shard 2 of 3: m-00001-of-00003.gguf, m-00003-of-00003.gguf must be given too",
  });
});

test("case F14: what is missing, doubled or foreign is named", () => {
  const [one, two, three] = trio();
  const whole = { name: "whole.gguf", header: parseHeader(smallGguf([8]), "x") };
  const detail = (files) => {
    try {
      orderShards(files);
    } catch (error) {
      assert.equal(error.code, "invalid_request");
      return error.detail;
    }
    return null;
  };
  assert.deepEqual(detail([one, three]), { missing: ["m-00002-of-00003.gguf"], count: 3 });
  assert.deepEqual(detail([one, two, { ...two, name: "copy" }]), { doubled: [two.name, "copy"] });
  assert.deepEqual(detail([one, two, whole]), { foreign: ["whole.gguf"] });
  assert.deepEqual(detail([whole, whole]), { foreign: ["whole.gguf"] });
  assert.deepEqual(orderShards([whole]), [0]);
});

test("case F12: shards joined with cat are recognised, a shard alone is not", () => {
  const shards = trio();
  const joined = Uint8Array.of(...shards.flatMap(({ bytes }) => [...bytes]));
  const header = parseHeader(joined, "big.gguf");
  for (const following of [null, joined.subarray(header.dataEnd)]) {
    assert.throws(() => requireSeparate(header, joined.length, "big.gguf", following), {
      code: "model_invalid",
      message: /^big\.gguf is made of several of the 3 shards/,
    });
  }
  requireSeparate(header, shards[0].bytes.length, "one.gguf");
  requireSeparate(header, joined.length, "longer.gguf", new Uint8Array(100));
});
