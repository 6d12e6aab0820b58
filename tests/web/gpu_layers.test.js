// How many layers the GPU is tried with: from headers as the store reads them, and the adapter's limits.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  ALL_LAYERS,
  estimateGpuLayers,
  expectedLayers,
  layersKey,
  layerSizes,
} from "../../web/worker/gpu_layers.js";
import { smallGguf } from "./small_gguf.js";

const MIB = 2 ** 20;
const LIMITS = { maxBufferSize: 1024 * MIB, maxStorageBufferBindingSize: 128 * MIB };

/** A header of a model with layers of 10 MiB each. @param {object} [changes] */
function header({ metadata = {}, layers = 4, output = true, prefix = "llama" } = {}) {
  const entries = {
    [`${prefix}.block_count`]: layers,
    [`${prefix}.context_length`]: 8192,
    [`${prefix}.embedding_length`]: 512,
    [`${prefix}.attention.head_count`]: 8,
    [`${prefix}.attention.head_count_kv`]: 2,
    ...metadata,
  };
  const tensors = [{ name: "token_embd.weight", bytes: 7 * MIB }];
  for (let layer = 0; layer < layers; layer++) {
    tensors.push({ name: `blk.${layer}.attn_q.weight`, bytes: 4 * MIB });
    tensors.push({ name: `blk.${layer}.ffn_up.weight`, bytes: 6 * MIB });
  }
  if (output) tensors.push({ name: "output.weight", bytes: 9 * MIB });
  return { metadata: new Map([["general.architecture", prefix], ...Object.entries(entries)]), tensors };
}

test("what lies where, in bytes", () => {
  assert.deepEqual(layerSizes([header()], {}, LIMITS), {
    layerBytes: [10 * MIB, 10 * MIB, 10 * MIB, 10 * MIB],
    outputBytes: 9 * MIB,
    inputBytes: 7 * MIB,
    contextBytesPerLayer: 4096 * 2 * (64 + 64) * 2,
  });
});

test("an output that is the table of tokens is a second copy of it", () => {
  assert.equal(layerSizes([header({ output: false })], {}, LIMITS).outputBytes, 7 * MIB);
});

test("tensors that no binding can hold stay on the CPU (case E4)", () => {
  const large = header();
  large.tensors[0].bytes = 129 * MIB;
  large.tensors[1].bytes = 128 * MIB + 1;
  const sizes = layerSizes([large], {}, LIMITS);
  assert.deepEqual([sizes.inputBytes, sizes.layerBytes[0]], [0, 6 * MIB]);
});

test("the shards of a model are counted together", () => {
  const whole = header();
  const first = { ...whole, tensors: whole.tensors.slice(0, 3) };
  const second = { metadata: new Map(), tensors: whole.tensors.slice(3) };
  assert.deepEqual(layerSizes([first, second], {}, LIMITS), layerSizes([whole], {}, LIMITS));
});

for (const [name, options, metadata, expected] of [
  ["several slots", { contextSize: 1024, slots: 3 }, {}, 1024 * 3 * 2 * 128 * 2],
  ["all that was trained", { contextSize: 0 }, {}, 8192 * 2 * 128 * 2],
  ["more than was trained", { contextSize: 65536 }, {}, 8192 * 2 * 128 * 2],
  ["heads of a length of their own", {}, { "llama.attention.key_length": 256 }, 4096 * 2 * (256 + 64) * 2],
  [
    "a list of heads",
    {},
    { "llama.attention.head_count_kv": { type: 5, length: 4 } },
    4096 * 8 * (64 + 64) * 2,
  ],
  ["no heads at all", {}, { "llama.attention.head_count": undefined }, 0],
]) {
  test(`keys and values: ${name}`, () => {
    assert.equal(layerSizes([header({ metadata })], options, LIMITS).contextBytesPerLayer, expected);
  });
}

for (const count of [undefined, 0, -1, 1.5, 2 ** 40, "many"]) {
  test(`a header with ${count} layers tells nothing`, () => {
    assert.equal(layerSizes([header({ metadata: { "llama.block_count": count } })], {}, LIMITS), null);
  });
}

// 4 buffers of 100 MiB, less 256 MiB for other things: 144 MiB.
const SMALL = { maxBufferSize: 100 * MIB, maxStorageBufferBindingSize: 100 * MIB };
const sizes = (/** @type {object} */ changes) => ({
  ...{ layerBytes: [10, 20, 30, 40].map((bytes) => bytes * MIB), outputBytes: 10 * MIB, inputBytes: 5 * MIB },
  ...{ contextBytesPerLayer: MIB, ...changes },
});

for (const [name, given, limits, expected] of [
  ["all of it", sizes({}), SMALL, ALL_LAYERS],
  ["all but the table of tokens", sizes({ inputBytes: 31 * MIB }), SMALL, 5],
  ["to the last byte", sizes({ inputBytes: 30 * MIB }), SMALL, ALL_LAYERS],
  ["from the output backwards", sizes({ contextBytesPerLayer: 20 * MIB }), SMALL, 3],
  ["the output alone", sizes({ outputBytes: 120 * MIB }), SMALL, 1],
  ["nothing, but one is tried", sizes({ outputBytes: 2000 * MIB }), SMALL, 1],
  ["a larger adapter", sizes({ outputBytes: 2000 * MIB }), LIMITS, ALL_LAYERS],
]) {
  test(`what is expected to fit: ${name}`, () => assert.equal(estimateGpuLayers(given, limits), expected));
}

/** @param {Uint8Array} bytes */
const file = (bytes) => ({
  size: bytes.length,
  read: (/** @type {Uint8Array} */ target, /** @type {number} */ at) => {
    const part = bytes.subarray(at, at + target.length);
    target.set(part);
    return part.length;
  },
  close() {},
});

test("files that do not tell, are damaged or cannot be read are no error", () => {
  const bytes = smallGguf([8]);
  const failing = { ...file(bytes), read: () => assert.fail("no disk") };
  for (const given of [file(bytes), file(bytes.subarray(0, 60)), file(new Uint8Array(99)), failing])
    assert.equal(expectedLayers([{ name: "m", file: given }], {}, LIMITS), null);
});

test("layers are remembered by the model and what its context takes", () => {
  const files = [{ name: "m.gguf", file: file(new Uint8Array(5)) }];
  const stored = { files, source: { kind: "opfs", modelId: "sha256-x" } };
  const local = { files, source: { kind: "file", modelId: null } };
  const keys = [
    layersKey(stored, {}),
    layersKey(local, {}),
    layersKey(stored, { contextSize: 8 }),
    layersKey(stored, { slots: 2 }),
    layersKey({ ...local, files: [{ name: "m.gguf", file: file(new Uint8Array(6)) }] }, {}),
  ];
  assert.equal(new Set(keys).size, keys.length);
  assert.equal(layersKey(stored, { slots: 1 }), layersKey(stored, {}));
});
