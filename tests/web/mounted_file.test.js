// Whatever the engine asks for, it gets the file's bytes: headers with few reads, tensors with exactly one.

import assert from "node:assert/strict";
import { test } from "node:test";

import { HeadraceError } from "../../web/errors.js";
import { BLOCK_BYTES, MountedFile, SMALL_BYTES } from "../../web/worker/mounted_file.js";

const SIZE = 4 * BLOCK_BYTES + 12_345;
const BYTES = Uint8Array.from({ length: SIZE }, (_, index) => (index * 31 + (index >> 9)) & 0xff);

/** A file that remembers what was read of it, at most `atOnce` bytes each time. */
function openFile(atOnce = Infinity) {
  const reads = /** @type {[number, number][]} */ ([]);
  const counters = { bytesRead: 0, reads: 0, readMs: 0 };
  let closed = 0;
  const file = new MountedFile(
    "model.gguf",
    {
      size: SIZE,
      read(target, at) {
        const bytes = BYTES.subarray(at, at + Math.min(target.length, atOnce));
        reads.push([at, at + bytes.length]);
        target.set(bytes);
        return bytes.length;
      },
      close: () => (closed += 1),
    },
    counters,
  );
  return { file, reads, counters, timesClosed: () => closed };
}

/** Reads as the C library does: again and again until all is there or nothing comes. */
function readFully(/** @type {MountedFile} */ file, /** @type {number} */ at, /** @type {number} */ length) {
  const target = new Uint8Array(length);
  let got = 0;
  while (got < length) {
    const count = file.read(target.subarray(got), at + got);
    if (count === 0) break;
    got += count;
  }
  return Buffer.from(target.subarray(0, got));
}

const expected = (/** @type {number} */ at, /** @type {number} */ length) =>
  Buffer.from(BYTES.subarray(at, at + length));

test("a header read in small pieces costs one read per block", () => {
  const { file, reads, counters } = openFile();
  for (let at = 0; at < 2 * BLOCK_BYTES; at += 1000) {
    assert.ok(readFully(file, at, 1000).equals(expected(at, 1000)), `at ${at}`);
  }
  assert.deepEqual(reads, [
    [0, BLOCK_BYTES],
    [BLOCK_BYTES, 2 * BLOCK_BYTES],
    [2 * BLOCK_BYTES, 3 * BLOCK_BYTES],
  ]);
  assert.equal(counters.bytesRead, 3 * BLOCK_BYTES);
  assert.equal(counters.reads, 3);
});

test("a long text within a header does not end the reading in blocks", () => {
  const { file, reads } = openFile();
  readFully(file, 0, 100);
  const length = BLOCK_BYTES + 50_000;
  assert.ok(readFully(file, 100, length).equals(expected(100, length)));
  const after = 100 + length;
  for (let at = after; at < after + 50_000; at += 500) {
    assert.ok(readFully(file, at, 500).equals(expected(at, 500)));
  }
  assert.deepEqual(reads, [
    [0, BLOCK_BYTES],
    [BLOCK_BYTES, after],
    [after, after + 500],
    [after + 500, after + 500 + BLOCK_BYTES],
  ]);
});

test("tensors, large and small, are read once and no byte more", () => {
  const { file, counters } = openFile();
  readFully(file, 0, 100);
  const before = counters.bytesRead;
  const tensors = [
    [3 * BLOCK_BYTES, BLOCK_BYTES],
    [2 * BLOCK_BYTES, SMALL_BYTES],
    [2 * BLOCK_BYTES + 70_000, 65_536],
    [2 * BLOCK_BYTES + SMALL_BYTES + 32, 2304],
    [4 * BLOCK_BYTES, 12_345],
  ];
  for (const [at, length] of tensors) assert.ok(readFully(file, at, length).equals(expected(at, length)));
  assert.equal(
    counters.bytesRead - before,
    tensors.reduce((sum, [, length]) => sum + length, 0),
  );
});

test("a large read goes straight into its target, one in shared memory too", () => {
  const shared = new Uint8Array(new SharedArrayBuffer(100_000));
  /** @type {Uint8Array[]} */
  const targets = [];
  const file = new MountedFile(
    "m",
    { size: SIZE, read: (target) => (targets.push(target), target.length), close() {} },
    { bytesRead: 0, reads: 0, readMs: 0 },
  );
  assert.equal(file.read(shared.subarray(10, 10 + 65_536), 5000), 65_536);
  assert.deepEqual([targets[0].buffer, targets[0].byteOffset, targets[0].length], [shared.buffer, 10, 65_536]);
});

test("reads that bring less than was asked for, and the end of the file", () => {
  const { file } = openFile(3000);
  for (const [at, length] of [
    [0, 10_000],
    [SIZE - 10, 10],
    [SIZE - 5, 100],
    [7, 3],
    [BLOCK_BYTES - 1, 2],
    [3, BLOCK_BYTES],
    [SIZE, 4],
    [SIZE + 10, 4],
  ]) {
    assert.ok(readFully(file, at, length).equals(expected(at, length)), `${length} bytes at ${at}`);
  }
});

test("case F8: positions beyond 4 GiB", () => {
  const positions = /** @type {number[]} */ ([]);
  const read = (/** @type {Uint8Array} */ target, /** @type {number} */ at) => {
    positions.push(at);
    return target.length;
  };
  const file = new MountedFile(
    "m",
    { size: 2 ** 33, read, close() {} },
    { bytesRead: 0, reads: 0, readMs: 0 },
  );
  file.read(new Uint8Array(2000), 2 ** 32 + 5);
  file.read(new Uint8Array(10), 2 ** 31 - 1);
  assert.deepEqual(positions, [2 ** 32 + 5, 2 ** 31 - 1]);
});

test("the first failure is kept, with its code or as storage_failed", () => {
  /** @type {Error | null} */
  let error = new Error("the disk is gone");
  const file = new MountedFile(
    "model.gguf",
    {
      size: 100,
      read() {
        if (error) throw error;
        return 0;
      },
      close() {},
    },
    { bytesRead: 0, reads: 0, readMs: 0 },
  );
  assert.equal(file.failure, null);
  const failed = { code: "storage_failed", message: "model.gguf could not be read: the disk is gone" };
  assert.throws(() => file.read(new Uint8Array(10), 0), failed);
  error = new HeadraceError("model_in_use", "later");
  assert.throws(() => file.read(new Uint8Array(10), 0), { code: "model_in_use" });
  error = null;
  assert.throws(() => file.read(new Uint8Array(10), 50), { message: "model.gguf ends at byte 50 of 100" });
  assert.equal(file.failure?.message, failed.message);
});

test("closing closes the file", () => {
  const { file, timesClosed } = openFile();
  file.close();
  assert.equal(timesClosed(), 1);
});
