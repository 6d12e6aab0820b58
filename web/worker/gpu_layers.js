// How many layers of a model the GPU is tried with first: an estimate from the file's header and the adapter.
//
// Counterparts: backend_attempts.js tries, and goes down from here; native/engine/model.cpp places the layers.
// Not a promise: no browser tells how much memory a GPU has.

import { fileHeader } from "../models/file_header.js";

/** @import { GgufHeader, ReadableFile } from "../models/types.js" */
/** @import { OpenedModel } from "./model_source.js" */
/** @import { LoadOptions } from "headrace/declarations" */

/**
 * What of a model would lie on the GPU, in bytes. Tensors that no GPU buffer can hold are not counted.
 * @typedef {object} LayerSizes
 * @property {number[]} layerBytes weights of each layer, from the input on
 * @property {number} outputBytes weights of the output layer, which is placed like one more
 * @property {number} inputBytes the table of tokens, on the GPU only when all layers are
 * @property {number} contextBytesPerLayer keys and values
 */

/**
 * Layers that are expected to fit, and all there are, the output layer counted.
 * @typedef {{estimate: number, total: number}} LayerEstimate
 */

/** The option gpuLayers for everything, the table of tokens too. */
export const ALL_LAYERS = -1;

/**
 * A guess: what a GPU takes for one buffer grows with its memory, and is between a quarter and a sixteenth of it
 * (256 MiB on phones with 4 GiB, 4 GiB on cards with 16 and more). Too high costs an attempt that fails; too low
 * would leave layers to the CPU that fit.
 */
const MEMORY_PER_BUFFER = 4;

/** What forward passes compute in, and what the browser itself needs. */
const RESERVED_BYTES = 2 ** 28;

/** Bytes of an f16, in which keys and values lie. */
const CACHE_BYTES = 2;

/**
 * @param {readonly {name: string, file: ReadableFile}[]} files of one model, open
 * @param {LoadOptions} options
 * @param {Readonly<Record<string, number>>} limits of the adapter
 * @returns {LayerEstimate | null} null when the files do not tell
 */
export function expectedLayers(files, options, limits) {
  const headers = readHeaders(files);
  const sizes = headers && layerSizes(headers, options, limits);
  return sizes && { estimate: estimateGpuLayers(sizes, limits), total: sizes.layerBytes.length + 1 };
}

/**
 * @param {OpenedModel} model
 * @param {LoadOptions} options
 * @returns {string} by what it is remembered how many layers fit: the model, and what its context takes
 */
export function layersKey({ source, files }, { contextSize, slots }) {
  const model = source.modelId ?? files.map(({ name, file }) => `${name} ${file.size}`).join(", ");
  return `${model}; ${contextSize ?? "default"} x ${slots ?? 1}`;
}

/**
 * @param {LayerSizes} sizes
 * @param {Readonly<Record<string, number>>} limits of the adapter
 * @returns {number} ALL_LAYERS, or the last layers that are expected to fit: 1 at least, the output layer
 */
export function estimateGpuLayers({ layerBytes, outputBytes, inputBytes, contextBytesPerLayer }, limits) {
  const room = limits.maxBufferSize * MEMORY_PER_BUFFER - RESERVED_BYTES;
  let needed = outputBytes;
  let layers = 1;
  for (const bytes of [...layerBytes].reverse()) {
    needed += bytes + contextBytesPerLayer;
    if (needed > room) return layers;
    layers += 1;
  }
  return needed + inputBytes > room ? layers : ALL_LAYERS;
}

/**
 * @param {readonly GgufHeader[]} headers of the model's files, the first one with the model's metadata
 * @param {LoadOptions} options
 * @param {Readonly<Record<string, number>>} limits of the adapter
 * @returns {LayerSizes | null} null when the header does not tell
 */
export function layerSizes(headers, { contextSize = 4096, slots = 1 }, limits) {
  const [{ metadata }] = headers;
  const architecture = metadata.get("general.architecture");
  /** @param {string} key */
  const number = (key) => Number(metadata.get(`${architecture}.${key}`));
  const count = number("block_count");
  if (!Number.isInteger(count) || count < 1 || count > 100_000) return null;

  const sizes = new Map(headers.flatMap(({ tensors }) => tensors).map(({ name, bytes }) => [name, bytes]));
  /** @param {string} name */
  const placed = (name) => {
    const bytes = sizes.get(name) ?? 0;
    return bytes <= limits.maxStorageBufferBindingSize ? bytes : 0;
  };
  /** @type {number[]} */
  const layerBytes = new Array(count).fill(0);
  for (const name of sizes.keys()) {
    const layer = Number(/^blk\.(\d+)\./.exec(name)?.[1]);
    if (layer < count) layerBytes[layer] += placed(name);
  }

  const heads = number("attention.head_count");
  // Where it differs from layer to layer it is a list, which the header's reader skips: as many as there can be.
  const keyHeads = number("attention.head_count_kv") || heads;
  const width = number("embedding_length") / heads;
  const [keys, values] = [number("attention.key_length") || width, number("attention.value_length") || width];
  const trained = number("context_length");
  const tokens = contextSize === 0 || contextSize > trained ? trained : contextSize;
  const contextBytesPerLayer = tokens * slots * keyHeads * (keys + values) * CACHE_BYTES;
  return {
    layerBytes,
    // Without a matrix of its own the output is computed with the table of tokens, of which there are two then.
    outputBytes: placed(sizes.has("output.weight") ? "output.weight" : "token_embd.weight"),
    inputBytes: placed("token_embd.weight"),
    contextBytesPerLayer: Number.isFinite(contextBytesPerLayer) ? contextBytesPerLayer : 0,
  };
}

/**
 * @param {readonly {name: string, file: ReadableFile}[]} files of one model
 * @returns {GgufHeader[] | null} null when one cannot be read, which the engine will tell better
 */
function readHeaders(files) {
  try {
    const headers = files.flatMap(({ name, file }) => fileHeader(file, name) ?? []);
    return headers.length === files.length ? headers : null;
  } catch {
    return null;
  }
}
