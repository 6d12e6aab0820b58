// A Blob gives its bytes as a file, in slices, whatever part is asked for.

import assert from "node:assert/strict";
import { test } from "node:test";

import { SLICE_BYTES, openBlob } from "../../web/models/blob_file.js";

const SIZE = 2 * SLICE_BYTES + 12_345;
const BYTES = Uint8Array.from({ length: SIZE }, (_, index) => (index * 31 + (index >> 9)) & 0xff);

/** Node cannot read a Blob at once, so a part remembers where it lies. */
function openFile() {
  const slices = /** @type {[number, number][]} */ ([]);
  const blob = { size: SIZE, slice: (/** @type {number} */ from, /** @type {number} */ to) => ({ from, to }) };
  const file = openBlob(/** @type {any} */ (blob), (/** @type {any} */ { from, to }) => {
    slices.push([from, to]);
    return BYTES.slice(from, to);
  });
  return { file, slices };
}

test("a large read is done in slices", () => {
  const { file, slices } = openFile();
  assert.equal(file.size, SIZE);
  const target = new Uint8Array(SIZE - 10);
  assert.equal(file.read(target, 10), SIZE - 10);
  assert.ok(Buffer.from(target).equals(Buffer.from(BYTES.subarray(10))));
  assert.deepEqual(slices, [
    [10, 10 + SLICE_BYTES],
    [10 + SLICE_BYTES, 10 + 2 * SLICE_BYTES],
    [10 + 2 * SLICE_BYTES, SIZE],
  ]);
});

test("the file's end cuts a read, and nothing lies behind it", () => {
  const { file, slices } = openFile();
  const target = new Uint8Array(100);
  assert.equal(file.read(target, SIZE - 3), 3);
  assert.deepEqual([...target.subarray(0, 4)], [...BYTES.subarray(SIZE - 3), 0]);
  assert.equal(file.read(target, SIZE), 0);
  assert.equal(file.read(target, SIZE + 5), 0);
  assert.equal(slices.length, 1);
});
