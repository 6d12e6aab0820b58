// Every case of the backend choice as one table, and the errors for what was asked for but cannot be had.

import assert from "node:assert/strict";
import { test } from "node:test";

import { chooseBackend } from "../../web/backend_choice.js";

const FULL = {
  crossOriginIsolated: true,
  sharedArrayBuffer: true,
  hardwareConcurrency: 8,
  wasmSimd: true,
  wasmThreads: true,
  wasmExceptions: true,
  jspi: true,
  secureContext: true,
  opfs: true,
  webLocks: true,
  gpu: true,
};
const NOT_ISOLATED = { ...FULL, crossOriginIsolated: false, sharedArrayBuffer: false };
const AUTO = { backend: "auto", artifact: "auto", threads: 0 };

const CHOICES = [
  // facts, request, [artifact, threads], words the reasons must hold
  ["isolated page", FULL, AUTO, ["mt", 4], ["cross-origin isolated", "4 threads of the 8", "no WebGPU"]],
  [
    "two cores",
    { ...FULL, hardwareConcurrency: 2 },
    AUTO,
    ["mt", 2],
    ["2 threads: as many as the browser offers"],
  ],
  ["one core", { ...FULL, hardwareConcurrency: 1 }, AUTO, ["mt", 1], ["1 thread: as many"]],
  ["threads asked", FULL, { ...AUTO, threads: 6 }, ["mt", 6], ["6 threads, as asked"]],
  ["all threads asked", FULL, { ...AUTO, threads: 8 }, ["mt", 8], ["8 threads, as asked"]],
  ["cpu asked", FULL, { ...AUTO, backend: "cpu" }, ["mt", 4], ["CPU, as asked"]],
  ["mt asked", FULL, { ...AUTO, artifact: "mt" }, ["mt", 4], ["Multi-thread engine: as asked"]],
  ["st asked", FULL, { ...AUTO, artifact: "st" }, ["st", 1], ["Single-thread engine, as asked"]],
  ["st with one thread", FULL, { ...AUTO, artifact: "st", threads: 1 }, ["st", 1], ["1 thread"]],
  [
    "not isolated",
    NOT_ISOLATED,
    AUTO,
    ["st", 1],
    ["Cross-Origin-Opener-Policy", "Cross-Origin-Embedder-Policy"],
  ],
  ["not isolated, threads asked", NOT_ISOLATED, { ...AUTO, threads: 2 }, ["st", 1], ["2 were asked for"]],
  ["not isolated, many threads", NOT_ISOLATED, { ...AUTO, threads: 64 }, ["st", 1], ["64 were asked for"]],
  [
    "isolated without SharedArrayBuffer",
    { ...FULL, sharedArrayBuffer: false },
    AUTO,
    ["st", 1],
    ["Single-thread"],
  ],
  ["insecure origin", { ...NOT_ISOLATED, secureContext: false }, AUTO, ["st", 1], ["https"]],
  ["no wasm threads", { ...FULL, wasmThreads: false }, AUTO, ["st", 1], ["no threads"]],
];

for (const [name, facts, request, [artifact, threads], words] of CHOICES) {
  test(`choice: ${name}`, () => {
    const choice = chooseBackend(facts, request);
    assert.deepEqual([choice.artifact, choice.threads, choice.backend], [artifact, threads, "cpu"]);
    for (const word of words) assert.match(choice.reasons.join("\n"), new RegExp(word));
    for (const reason of choice.reasons) assert.match(reason, /^[A-Z0-9].*\.$/s, "a reason is a sentence");
  });
}

const REFUSALS = [
  ["webgpu", FULL, { ...AUTO, backend: "webgpu" }, ["WebGPU backend in this build"], /"webgpu"/],
  [
    "webgpu without navigator.gpu",
    { ...FULL, gpu: false },
    { ...AUTO, backend: "webgpu" },
    ["WebGPU backend in this build", "WebGPU in this browser (navigator.gpu)"],
    /navigator\.gpu/,
  ],
  [
    "mt, not isolated",
    NOT_ISOLATED,
    { ...AUTO, artifact: "mt" },
    ["cross-origin isolation"],
    /Cross-Origin-Opener-Policy: same-origin.*Cross-Origin-Embedder-Policy: require-corp/,
  ],
  [
    "mt, insecure",
    { ...NOT_ISOLATED, secureContext: false },
    { ...AUTO, artifact: "mt" },
    ["secure context"],
    /localhost/,
  ],
  [
    "more threads than there are",
    FULL,
    { ...AUTO, threads: 9 },
    ["9 threads"],
    /9 threads were asked for, but this browser offers 8$/,
  ],
  [
    "more threads than there are, mt",
    { ...FULL, hardwareConcurrency: 1 },
    { ...AUTO, artifact: "mt", threads: 2 },
    ["2 threads"],
    /2 threads were asked for, but this browser offers 1$/,
  ],
  ["no SIMD", { ...FULL, wasmSimd: false }, AUTO, ["128-bit SIMD"], /SIMD/],
  [
    "no exceptions",
    { ...FULL, wasmExceptions: false },
    { ...AUTO, artifact: "st" },
    ["exception handling"],
    /exception/,
  ],
];

for (const [name, facts, request, missing, message] of REFUSALS) {
  test(`refusal: ${name}`, () => {
    assert.throws(
      () => chooseBackend(facts, request),
      (error) => {
        assert.equal(error.code, "environment_unsupported");
        assert.deepEqual(error.detail.missing, missing);
        assert.match(error.message, message);
        return true;
      },
    );
  });
}

test("threads for the single-thread engine contradict each other, isolated or not", () => {
  for (const facts of [FULL, NOT_ISOLATED]) {
    assert.throws(
      () => chooseBackend(facts, { ...AUTO, artifact: "st", threads: 3 }),
      (error) => {
        assert.equal(error.code, "invalid_option");
        assert.deepEqual(error.detail, { option: "threads" });
        assert.match(error.message, /3 threads.*"st"/);
        return true;
      },
    );
  }
});

test("the same facts give the same choice, and are left as they are", () => {
  const facts = Object.freeze({ ...FULL });
  const request = Object.freeze({ ...AUTO });
  assert.deepEqual(chooseBackend(facts, request), chooseBackend(facts, request));
});
