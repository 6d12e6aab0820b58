// Reads Blobs while the caller waits, which Node itself has no means for: another thread reads them.
//
// Counterpart: FileReaderSync in a browser's workers.

import { Worker } from "node:worker_threads";

const READER = `
  const { parentPort } = require("node:worker_threads");
  parentPort.on("message", async ({ blob, bytes, done }) => {
    bytes.set(new Uint8Array(await blob.arrayBuffer()));
    Atomics.store(done, 0, 1);
    Atomics.notify(done, 0);
  });
`;

const reader = new Worker(READER, { eval: true });
reader.unref();

/**
 * @param {Blob} blob
 * @returns {Uint8Array}
 */
export function readBlob(blob) {
  const bytes = new Uint8Array(new SharedArrayBuffer(blob.size));
  const done = new Int32Array(new SharedArrayBuffer(4));
  reader.postMessage({ blob, bytes, done });
  if (Atomics.wait(done, 0, 0, 10_000) === "timed-out") throw new Error("the Blob was not read");
  return bytes.slice();
}
