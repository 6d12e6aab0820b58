// Digests are those of Node's own SHA-256, whatever pieces the bytes come in.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { createSha256, sha256Hex } from "../../web/models/sha256.js";

const BYTES = Uint8Array.from({ length: 3_000_001 }, (_, index) => (index * 31 + (index >> 8)) & 0xff);
const expected = (/** @type {any} */ data) => createHash("sha256").update(data).digest("hex");

test("texts count as UTF-8", async () => {
  assert.equal(await sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  for (const text of ["abc", "https://example.org/ü?x=1", "世界 😀"]) {
    assert.equal(await sha256Hex(text), expected(text));
  }
  assert.equal(await sha256Hex(BYTES.subarray(1, 100)), expected(BYTES.subarray(1, 100)));
});

test("pieces of any size, several digests at once, and shared memory", async () => {
  const shared = new Uint8Array(new SharedArrayBuffer(BYTES.length));
  shared.set(BYTES);
  const sizes = [1, 63, 64, 65, 16_383, 16_385, 1_048_576];
  const digests = await Promise.all(sizes.map(() => createSha256()));
  for (const [index, size] of sizes.entries()) {
    const [from, until] = index % 2 ? [shared, BYTES.length] : [BYTES, 1_000_000];
    for (let at = 0; at < until; at += size) {
      digests[index].update(from.subarray(at, Math.min(at + size, until)));
      if (at === 0) digests[0].update(new Uint8Array(0));
    }
  }
  for (const [index, digest] of digests.entries()) {
    assert.equal(digest.digest(), expected(BYTES.subarray(0, index % 2 ? BYTES.length : 1_000_000)));
  }
});
