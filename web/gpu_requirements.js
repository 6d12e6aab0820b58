// What the GPU path needs of the browser and the adapter, and which of it is missing: a pure function.
//
// Counterparts: gpu_adapter.js and environment.js measure the facts, backend_choice.js decides. Not about
// models: what of a model the GPU computes, the engine decides op by op.

import { adapterName } from "./gpu_adapter.js";

/** @import { Environment } from "./environment.js" */
/** @import { AdapterFacts } from "./gpu_adapter.js" */

/**
 * `text` is the part of a sentence that says what is the matter, `missing` the name of what is missing.
 * @typedef {{text: string, missing: string}} Obstacle
 */

/**
 * The least that ggml-webgpu (ggml 0.25.3) can do with. It asks for a device with all limits of the adapter,
 * so what an adapter has more is used. These are also the smallest limits that WebGPU allows, but for its
 * compatibility mode: a device below them was never tried by anybody.
 * @type {Readonly<Record<string, number>>}
 */
export const REQUIRED_LIMITS = Object.freeze({
  // WEBGPU_MUL_MAT_VEC_WG_SIZE in ggml-webgpu-shader-lib.hpp, whatever the limit is: the matrix-vector kernels
  // of decoding.
  maxComputeInvocationsPerWorkgroup: 256,
  // Every workgroup but one is a row: @workgroup_size(WG_SIZE).
  maxComputeWorkgroupSizeX: 256,
  // ssm_scan.wgsl and gated_delta_net.wgsl bind eight; flash_attn_vec_split.wgsl seven, mul_mat_id.wgsl six.
  maxStorageBuffersPerShaderStage: 8,
  // mul_mat_id_vec.wgsl: four sums for each of 256 invocations, and two words per expert, so 12 KiB for 1024
  // experts; flash attention and argsort fit themselves to the limit.
  maxComputeWorkgroupStorageSize: 16384,
  // compute_2d_workgroups() in ggml-webgpu.cpp spreads over two dimensions, not three.
  maxComputeWorkgroupsPerDimension: 65535,
  // What one tensor may have on the GPU; larger ones are left to the CPU (supports_op).
  maxStorageBufferBindingSize: 2 ** 27,
  // ggml's buffers are as large as a binding may be (buffer_type_get_max_size).
  maxBufferSize: 2 ** 27,
});

/**
 * @param {Environment} facts
 * @returns {Obstacle[]} in the order in which somebody would have to remove them; none when the GPU can be used
 */
export function gpuObstacles({ secureContext, gpu, jspi, adapter, adapterProblem }) {
  const obstacles = [];
  if (!secureContext) {
    const text = "the page is not a secure context: WebGPU needs https, or localhost";
    obstacles.push({ text, missing: "secure context" });
  }
  if (!gpu) {
    const text = "this browser offers the page no WebGPU (navigator.gpu)";
    obstacles.push({ text, missing: "WebGPU in this browser (navigator.gpu)" });
  }
  if (!jspi) {
    const text = "this browser's WebAssembly cannot wait for the GPU (WebAssembly.Suspending, called JSPI)";
    obstacles.push({ text, missing: "JSPI (WebAssembly.Suspending)" });
  }
  if (adapter) obstacles.push(...adapterObstacles(adapter));
  else if (gpu && adapterProblem !== null) {
    const text = `there is no WebGPU adapter: ${adapterProblem}`;
    obstacles.push({ text, missing: "a WebGPU adapter" });
  }
  return obstacles;
}

/**
 * @param {AdapterFacts} adapter
 * @returns {Obstacle[]}
 */
function adapterObstacles({ info, features, limits }) {
  const name = adapterName(info);
  const obstacles = [];
  if (!features.includes("shader-f16")) {
    const text = `the WebGPU adapter (${name}) lacks shader-f16, which every kernel needs`;
    obstacles.push({ text, missing: "shader-f16" });
  }
  for (const [limit, least] of Object.entries(REQUIRED_LIMITS)) {
    if (limits[limit] >= least) continue;
    obstacles.push(tooSmall(name, limit, limits[limit], least));
  }
  // Most kernels are compiled for one row of as many invocations as a workgroup may have.
  const { maxComputeWorkgroupSizeX: row, maxComputeInvocationsPerWorkgroup: all } = limits;
  if (row >= REQUIRED_LIMITS.maxComputeWorkgroupSizeX && row < all)
    obstacles.push(tooSmall(name, "maxComputeWorkgroupSizeX", row, all));
  return obstacles;
}

/**
 * @param {string} name
 * @param {string} limit
 * @param {number | undefined} has
 * @param {number} least
 */
function tooSmall(name, limit, has, least) {
  return {
    text: `the WebGPU adapter (${name}) has a ${limit} of ${has ?? "nothing"}, and ${least} is needed`,
    missing: `${limit} of ${least}`,
  };
}
