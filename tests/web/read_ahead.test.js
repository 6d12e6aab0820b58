// Whatever a reader asks for, it gets the file's bytes in order, with few reads of the Blob behind.

import assert from "node:assert/strict";
import { test } from "node:test";

import { BLOCK_BYTES, MAX_READ_BYTES, ReadAhead } from "../../web/worker/read_ahead.js";

const SIZE = BLOCK_BYTES + 2 * MAX_READ_BYTES + 12_345;
const FILE = Uint8Array.from({ length: SIZE }, (_, index) => (index * 31 + (index >> 9)) & 0xff);

/** Node cannot read a Blob at once, so a part remembers where it lies. */
function openFile() {
  const reads = /** @type {[number, number][]} */ ([]);
  const blob = {
    size: SIZE,
    slice: (/** @type {number} */ start, /** @type {number} */ end) => ({ start, end: Math.min(end, SIZE) }),
  };
  const file = new ReadAhead(/** @type {any} */ (blob), (/** @type {any} */ { start, end }) => {
    reads.push([start, end]);
    return FILE.buffer.slice(start, end);
  });
  return { file, reads };
}

/** Reads as the C library does: again and again until all is there or nothing comes. */
function readFully(
  /** @type {ReadAhead} */ file,
  /** @type {number} */ position,
  /** @type {number} */ length,
) {
  const parts = [];
  for (let left = length; left > 0;) {
    const { size, bytes } =
      position < file.size ? file.slice(position, position + left) : { size: 0, bytes: new ArrayBuffer(0) };
    if (size === 0) break;
    assert.ok(size <= left && size === bytes.byteLength);
    parts.push(Buffer.from(bytes));
    position += size;
    left -= size;
  }
  return Buffer.concat(parts);
}

const expected = (/** @type {number} */ start, /** @type {number} */ length) =>
  Buffer.from(FILE.subarray(start, start + length));

test("small reads in a row cost one read per block", () => {
  const { file, reads } = openFile();
  assert.equal(file.size, SIZE);
  for (let position = 0; position < 2 * BLOCK_BYTES; position += 1000) {
    assert.ok(readFully(file, position, 1000).equals(expected(position, 1000)), `at ${position}`);
  }
  assert.ok(reads.length <= 3, `${reads.length} reads`);
});

test("a large read takes what is there and reads the rest in few large pieces", () => {
  const { file, reads } = openFile();
  readFully(file, 0, 24);
  assert.ok(readFully(file, 24, SIZE - 24).equals(expected(24, SIZE - 24)));
  assert.deepEqual(reads, [
    [0, BLOCK_BYTES],
    [BLOCK_BYTES, BLOCK_BYTES + MAX_READ_BYTES],
    [BLOCK_BYTES + MAX_READ_BYTES, BLOCK_BYTES + 2 * MAX_READ_BYTES],
    [BLOCK_BYTES + 2 * MAX_READ_BYTES, SIZE],
  ]);
});

test("reading elsewhere and at the end of the file", () => {
  const { file } = openFile();
  for (const [position, length] of [
    [SIZE - 10, 10],
    [SIZE - 5, 100],
    [7, 3],
    [BLOCK_BYTES - 1, 2],
    [3, BLOCK_BYTES],
    [5, MAX_READ_BYTES + 1],
    [SIZE, 4],
  ]) {
    assert.ok(
      readFully(file, position, length).equals(expected(position, length)),
      `${length} bytes at ${position}`,
    );
  }
});
