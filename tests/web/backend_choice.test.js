// Every case of the backend choice as one table, and the errors for what was asked for but cannot be had.

import assert from "node:assert/strict";
import { test } from "node:test";

import { chooseBackend, needsAdapter } from "../../web/backend_choice.js";
import { REQUIRED_LIMITS } from "../../web/gpu_requirements.js";

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
  adapter: null,
  adapterProblem: null,
};
const ADAPTER = {
  info: { vendor: "nvidia", architecture: "hopper", device: "", description: "H200" },
  features: ["shader-f16", "subgroups"],
  limits: { ...REQUIRED_LIMITS, maxComputeInvocationsPerWorkgroup: 1024, maxComputeWorkgroupSizeX: 1024 },
  fallback: false,
  software: false,
};
const WITH_GPU = { ...FULL, adapter: ADAPTER };
const NO_GPU = { ...FULL, gpu: false };
const NOT_ISOLATED = { ...NO_GPU, crossOriginIsolated: false, sharedArrayBuffer: false };
const AUTO = { backend: "auto", artifact: "auto", threads: 0 };

const CHOICES = [
  // facts, request, [artifact, threads], words the reasons must hold
  ["isolated page", NO_GPU, AUTO, ["mt", 4], ["cross-origin isolated", "4 threads of the 8", "no WebGPU"]],
  [
    "two cores",
    { ...NO_GPU, hardwareConcurrency: 2 },
    AUTO,
    ["mt", 2],
    ["2 threads: as many as the browser offers"],
  ],
  ["one core", { ...NO_GPU, hardwareConcurrency: 1 }, AUTO, ["mt", 1], ["1 thread: as many"]],
  ["threads asked", NO_GPU, { ...AUTO, threads: 6 }, ["mt", 6], ["6 threads, as asked"]],
  ["all threads asked", NO_GPU, { ...AUTO, threads: 8 }, ["mt", 8], ["8 threads, as asked"]],
  ["cpu asked", WITH_GPU, { ...AUTO, backend: "cpu" }, ["mt", 4], ["CPU, as asked"]],
  ["mt asked", NO_GPU, { ...AUTO, artifact: "mt" }, ["mt", 4], ["Multi-thread engine: as asked"]],
  ["st asked", NO_GPU, { ...AUTO, artifact: "st" }, ["st", 1], ["Single-thread engine, as asked"]],
  ["st with one thread", NO_GPU, { ...AUTO, artifact: "st", threads: 1 }, ["st", 1], ["1 thread"]],
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
    { ...NO_GPU, sharedArrayBuffer: false },
    AUTO,
    ["st", 1],
    ["Single-thread"],
  ],
  ["insecure origin", { ...NOT_ISOLATED, secureContext: false }, AUTO, ["st", 1], ["https"]],
  ["no wasm threads", { ...NO_GPU, wasmThreads: false }, AUTO, ["st", 1], ["no threads"]],
];

for (const [name, facts, request, [artifact, threads], words] of CHOICES) {
  test(`choice: ${name}`, () => {
    const choice = chooseBackend(facts, request);
    assert.deepEqual([choice.artifact, choice.threads, choice.backend], [artifact, threads, "cpu"]);
    assert.equal(choice.gpu, null);
    for (const word of words) assert.match(choice.reasons.join("\n"), new RegExp(word));
    for (const reason of choice.reasons) assert.match(reason, /^[A-Z0-9].*\.$/s, "a reason is a sentence");
  });
}

const WEBGPU = { ...AUTO, backend: "webgpu" };
/** @param {object} changes */
const adapterWith = (changes) => ({ ...WITH_GPU, adapter: { ...ADAPTER, ...changes } });
/** @param {Record<string, number | undefined>} limits */
const limitedTo = (limits) => adapterWith({ limits: { ...ADAPTER.limits, ...limits } });

const SOFTWARE = adapterWith({
  info: { vendor: "google", architecture: "swiftshader", device: "", description: "" },
  software: true,
});
/** Case E4: the smallest limits that WebGPU allows. */
const SMALLEST = limitedTo({ ...REQUIRED_LIMITS });

/** [facts, request, words of the first reason] that lead to the GPU */
const ON_GPU = [
  ["auto", WITH_GPU, AUTO, /^WebGPU: the adapter \(nvidia hopper H200\) has what is needed\.$/],
  ["webgpu", WITH_GPU, WEBGPU, /^WebGPU, as asked: nvidia hopper H200\.$/],
  ["auto, the smallest limits (case E4)", SMALLEST, AUTO, /^WebGPU: the adapter/],
  ["webgpu, the smallest limits (case E4)", SMALLEST, WEBGPU, /^WebGPU, as asked/],
  ["webgpu, software", SOFTWARE, WEBGPU, /^WebGPU, as asked: google swiftshader\.$/],
  ["auto, software allowed", SOFTWARE, { ...AUTO, allowSoftwareAdapter: true }, /^WebGPU: the adapter/],
  [
    "auto, an adapter that tells nothing of itself",
    adapterWith({ info: { vendor: "", architecture: "", device: "", description: "" } }),
    AUTO,
    /\(unnamed\)/,
  ],
];

for (const [name, facts, request, words] of ON_GPU) {
  for (const powerPreference of [undefined, "low-power"]) {
    test(`GPU: ${name}, power preference ${powerPreference}`, () => {
      const choice = chooseBackend(facts, { ...request, powerPreference });
      assert.deepEqual([choice.backend, choice.artifact, choice.threads], ["webgpu", "mt", 4]);
      assert.match(choice.reasons[0], words);
      assert.deepEqual(choice.gpu, {
        adapter: facts.adapter,
        powerPreference: powerPreference ?? null,
        required: request.backend === "webgpu",
      });
    });
  }
}

const NO_ADAPTER = { ...FULL, adapterProblem: "the browser offers none" };
const INSECURE = { ...NOT_ISOLATED, secureContext: false, gpu: false };

/** [facts, words of auto's first reason, what is missing for "webgpu"] where the GPU cannot be used */
const OBSTACLES = [
  ["no navigator.gpu", NO_GPU, /no WebGPU/, ["WebGPU in this browser (navigator.gpu)"]],
  [
    "an insecure page",
    INSECURE,
    /https, or localhost/,
    ["secure context", "WebGPU in this browser (navigator.gpu)"],
  ],
  ["no adapter", NO_ADAPTER, /no WebGPU adapter: the browser offers none/, ["a WebGPU adapter"]],
  ["no JSPI (case E2)", { ...WITH_GPU, jspi: false }, /JSPI/, ["JSPI (WebAssembly.Suspending)"]],
  [
    "neither JSPI nor an adapter (case E2)",
    { ...NO_ADAPTER, jspi: false },
    /JSPI/,
    ["JSPI (WebAssembly.Suspending)", "a WebGPU adapter"],
  ],
  ["no shader-f16 (case E3)", adapterWith({ features: ["subgroups"] }), /shader-f16/, ["shader-f16"]],
  [
    "no shader-f16 and no JSPI (cases E2 and E3)",
    { ...adapterWith({ features: [] }), jspi: false },
    /JSPI/,
    ["JSPI (WebAssembly.Suspending)", "shader-f16"],
  ],
  ...Object.entries(REQUIRED_LIMITS).map(([limit, least]) => [
    `${limit} too small (case E4)`,
    limitedTo({ maxComputeInvocationsPerWorkgroup: 256, [limit]: least - 1 }),
    new RegExp(`nvidia hopper H200.* ${limit} of ${least - 1}, and ${least} is needed`),
    [`${limit} of ${least}`],
  ]),
  [
    "a limit that is not told (case E4)",
    limitedTo({ maxBufferSize: undefined }),
    /maxBufferSize of nothing/,
    [`maxBufferSize of ${REQUIRED_LIMITS.maxBufferSize}`],
  ],
  [
    "rows shorter than workgroups (case E4)",
    limitedTo({ maxComputeWorkgroupSizeX: 512 }),
    /maxComputeWorkgroupSizeX of 512, and 1024 is needed/,
    ["maxComputeWorkgroupSizeX of 1024"],
  ],
];

for (const [name, facts, words, missing] of OBSTACLES) {
  test(`CPU, because of ${name}`, () => {
    const choice = chooseBackend(facts, AUTO);
    assert.deepEqual([choice.backend, choice.gpu], ["cpu", null]);
    assert.match(choice.reasons[0], words);
    assert.match(choice.reasons[0], /^CPU: .*\.$/);
  });

  test(`an error, because of ${name}`, () => {
    assert.throws(
      () => chooseBackend(facts, WEBGPU),
      (error) => {
        assert.equal(error.code, "environment_unsupported");
        assert.deepEqual(error.detail.missing, missing);
        assert.match(error.message, words);
        assert.match(error.message, /^the backend "webgpu" was asked for, but /);
        return true;
      },
    );
  });
}

test("auto does not take a software adapter, and says so", () => {
  const choice = chooseBackend(SOFTWARE, AUTO);
  assert.deepEqual([choice.backend, choice.gpu], ["cpu", null]);
  assert.match(choice.reasons[0], /^CPU: .*google swiftshader.*software.*slower\.$/);
});

test("the adapter is asked for only where the choice depends on it", () => {
  const CPU = { ...AUTO, backend: "cpu" };
  const table = [
    [FULL, AUTO, true],
    [FULL, WEBGPU, true],
    [FULL, CPU, false],
    [NO_GPU, AUTO, false],
    [NO_GPU, WEBGPU, false],
    [{ ...FULL, jspi: false }, AUTO, false],
    [{ ...FULL, jspi: false }, WEBGPU, true],
  ];
  for (const [facts, request, needed] of table) assert.equal(needsAdapter(facts, request), needed);
});

test("a GPU changes neither the artifact nor the threads", () => {
  const facts = { ...NOT_ISOLATED, gpu: true, adapter: ADAPTER };
  const choice = chooseBackend(facts, AUTO);
  assert.deepEqual([choice.backend, choice.artifact, choice.threads], ["webgpu", "st", 1]);
  const asked = chooseBackend(WITH_GPU, { ...WEBGPU, threads: 7 });
  assert.deepEqual([asked.artifact, asked.threads], ["mt", 7]);
});

const REFUSALS = [
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
    NO_GPU,
    { ...AUTO, threads: 9 },
    ["9 threads"],
    /9 threads were asked for, but this browser offers 8$/,
  ],
  [
    "more threads than there are, mt",
    { ...NO_GPU, hardwareConcurrency: 1 },
    { ...AUTO, artifact: "mt", threads: 2 },
    ["2 threads"],
    /2 threads were asked for, but this browser offers 1$/,
  ],
  ["no SIMD", { ...NO_GPU, wasmSimd: false }, AUTO, ["128-bit SIMD"], /SIMD/],
  [
    "no exceptions",
    { ...NO_GPU, wasmExceptions: false },
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
  for (const facts of [NO_GPU, NOT_ISOLATED]) {
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
  const facts = Object.freeze({ ...WITH_GPU, adapter: Object.freeze(ADAPTER) });
  const request = Object.freeze({ ...AUTO });
  assert.deepEqual(chooseBackend(facts, request), chooseBackend(facts, request));
});
