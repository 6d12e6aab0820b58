// What the WebGPU adapter of a page or of a dedicated module worker can do, and whether it computes.
//
// Counterpart: test_gpu_adapter.py, which loads it in both. Nothing of Headrace is used.

/** @returns {Promise<object>} */
export async function measure() {
  const adapter = await navigator.gpu.requestAdapter();
  const names = Object.keys(GPUSupportedLimits.prototype);
  return {
    isWorker: "DedicatedWorkerGlobalScope" in globalThis,
    features: [...adapter.features],
    limits: Object.fromEntries(names.map((name) => [name, adapter.limits[name]])),
    crossOriginIsolated,
    suspending: typeof WebAssembly.Suspending,
  };
}

const SHADER = `
  enable f16;
  @group(0) @binding(0) var<storage, read> input: array<f32>;
  @group(0) @binding(1) var<storage, read_write> output: array<f32>;
  @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&input)) { return; }
    let x = input[id.x];
    output[2 * id.x] = f32(f16(x) * 1.5h + 1h);
    output[2 * id.x + 1] = x * 1.5 + 1;
  }`;

/**
 * @param {number[]} values
 * @returns {Promise<{results: number[], errors: string[]}>} for each value x, 1.5 x + 1 in f16 and in f32
 */
export async function compute(values) {
  const adapter = await navigator.gpu.requestAdapter();
  const device = await adapter.requestDevice({ requiredFeatures: ["shader-f16"] });
  const errors = [];
  device.onuncapturederror = ({ error }) => errors.push(error.message);
  const module = device.createShaderModule({ code: SHADER });
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });

  const { STORAGE, COPY_DST, COPY_SRC, MAP_READ } = GPUBufferUsage;
  const bytes = 4 * values.length;
  const input = device.createBuffer({ size: bytes, usage: STORAGE | COPY_DST });
  const output = device.createBuffer({ size: 2 * bytes, usage: STORAGE | COPY_SRC });
  const back = device.createBuffer({ size: 2 * bytes, usage: MAP_READ | COPY_DST });
  device.queue.writeBuffer(input, 0, new Float32Array(values));
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [input, output].map((buffer, binding) => ({ binding, resource: { buffer } })),
  });

  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(Math.ceil(values.length / 64));
  pass.end();
  encoder.copyBufferToBuffer(output, 0, back, 0, 2 * bytes);
  device.queue.submit([encoder.finish()]);
  await back.mapAsync(GPUMapMode.READ);
  const results = [...new Float32Array(back.getMappedRange())];
  device.destroy();
  return { results, errors };
}

if ("DedicatedWorkerGlobalScope" in globalThis) {
  globalThis.onmessage = async ({ data: { name, argument } }) => {
    try {
      postMessage({ value: await { measure, compute }[name](argument) });
    } catch (error) {
      postMessage({ error: String(error) });
    }
  };
}
