// What the WebGPU adapter of a page or of a dedicated module worker can do, and whether it computes.
//
// Counterparts: test_gpu_adapter.py and test_gpu_wrapper.py, which load it in both. Nothing of Headrace is used.

/** @returns {Promise<object>} */
export async function measure() {
  const adapter = await navigator.gpu.requestAdapter();
  return {
    isWorker: "DedicatedWorkerGlobalScope" in globalThis,
    features: [...adapter.features],
    limits: read(adapter.limits, Object.keys(GPUSupportedLimits.prototype)),
    info: read(adapter.info, Object.keys(GPUAdapterInfo.prototype)),
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
  const device = await openDevice({ requiredFeatures: ["shader-f16"] });
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

/**
 * @param {GPUDeviceDescriptor} descriptor
 * @returns {Promise<string>} "device", if there is one
 */
export async function tryDevice(descriptor) {
  const device = await openDevice(descriptor);
  device.destroy();
  return "device";
}

/** @returns {Promise<string>} "kept": a device that nobody destroys */
export async function keepDevice() {
  globalThis.probeDevice = await openDevice({});
  return "kept";
}

/** @returns {Promise<string>} why the device that was opened last was lost, once it is */
export async function lastLoss() {
  return (await globalThis.probeLoss).reason;
}

/**
 * What a device that was asked for nothing special refuses.
 * @param {{invocations: number}} beyond a workgroup's size that it should refuse
 * @returns {Promise<{device: Record<string, number>, errors: Record<string, string>}>}
 */
export async function tryLimits({ invocations }) {
  const device = await openDevice({});
  const { STORAGE } = GPUBufferUsage;
  const errors = {};
  const attempt = async (name, action) => {
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    action();
    const found = [await device.popErrorScope(), await device.popErrorScope()].find(Boolean);
    if (found) errors[name] = found.message;
  };
  const pipeline = (code) =>
    device.createComputePipeline({ layout: "auto", compute: { module: device.createShaderModule({ code }) } });
  const { limits } = device;

  await attempt("nothing", () => device.createBuffer({ size: limits.maxBufferSize, usage: STORAGE }).destroy());
  await attempt("buffer", () => device.createBuffer({ size: limits.maxBufferSize + 4, usage: STORAGE }));
  await attempt("binding", () => {
    const size = limits.maxStorageBufferBindingSize + 4;
    const buffer = device.createBuffer({ size, usage: STORAGE });
    const entry = { binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: "storage" } };
    const layout = device.createBindGroupLayout({ entries: [entry] });
    device.createBindGroup({ layout, entries: [{ binding: 0, resource: { buffer } }] });
    buffer.destroy();
  });
  await attempt("invocations", () => pipeline(`@compute @workgroup_size(${invocations}) fn main() {}`));
  await attempt("workgroupStorage", () =>
    pipeline(`var<workgroup> all: array<u32, ${limits.maxComputeWorkgroupStorageSize / 4 + 1}>;
      @compute @workgroup_size(1) fn main() { all[0] = 1; }`),
  );
  await attempt("workgroups", () => {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline("@compute @workgroup_size(1) fn main() {}"));
    pass.dispatchWorkgroups(limits.maxComputeWorkgroupsPerDimension + 1);
    pass.end();
    encoder.finish();
  });
  const told = read(limits, Object.keys(GPUSupportedLimits.prototype));
  device.destroy();
  return { device: told, errors };
}

/**
 * Fills the GPU's memory and frees it again.
 * @param {{blockBytes: number, most: number}} blocks
 * @returns {Promise<{blocks: number, kind: string | null, errors: string[], lost: string | null}>} blocks that
 *   fitted; the class of the next one's error; errors that no scope caught; why the device was lost, if it was
 */
export async function fillMemory({ blockBytes, most }) {
  const device = await openDevice({});
  const errors = [];
  let lost = null;
  device.onuncapturederror = ({ error }) => errors.push(error.message);
  device.lost.then(({ reason, message }) => (lost = `${reason}: ${message}`));
  const buffers = [];
  let kind = null;
  while (!kind && buffers.length < most) {
    device.pushErrorScope("out-of-memory");
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST;
    const buffer = device.createBuffer({ size: blockBytes, usage });
    const error = await device.popErrorScope();
    if (error) kind = error.constructor.name;
    else buffers.push(buffer);
  }
  for (const buffer of buffers) buffer.destroy();
  await device.queue.onSubmittedWorkDone();
  const wasLost = lost;
  device.destroy();
  return { blocks: buffers.length, kind, errors, lost: wasLost };
}

/** @param {GPUDeviceDescriptor} descriptor */
async function openDevice(descriptor) {
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) throw new Error("no adapter");
  const device = await adapter.requestDevice(descriptor);
  globalThis.probeLoss = device.lost;
  return device;
}

/** @param {string[]} names */
function read(object, names) {
  return Object.fromEntries(names.map((name) => [name, object[name]]));
}

if ("DedicatedWorkerGlobalScope" in globalThis && globalThis.onmessage === null) {
  globalThis.onmessage = async ({ data: { name, argument } }) => {
    try {
      postMessage({ value: await { measure, compute }[name](argument) });
    } catch (error) {
      postMessage({ error: String(error) });
    }
  };
}
