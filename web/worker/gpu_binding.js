// The engine's hands on navigator.gpu: handles for its objects, futures for its promises, a list of its
// faults.
//
// Counterparts: native/webgpu/browser_gpu.h, whose functions these are, and webgpu_library.js, which turns
// pointers into the views and texts that arrive here. Not a judge of adapters: backend_choice.js is.

import { HandleTable } from "./handle_table.js";

/** @import { PowerPreference } from "../gpu_adapter.js" */

/** What hr_gpu_wait of browser_gpu.h answers. */
const WAITED = /** @type {const} */ ({ settled: 1, timedOut: 2, lost: 3 });

/** hr_gpu_fault of browser_gpu.h. */
const FAULTS = /** @type {const} */ ({ lost: 1, destroyed: 2, outOfMemory: 3, validation: 4, internal: 5 });

/**
 * `value` is a handle that came of it, or 0.
 * @typedef {{succeeded: boolean, value: number, reason: string}} FutureResult
 */

/** @typedef {{promise: Promise<unknown>, result: FutureResult}} GpuFuture */

/** One for each engine. No method waits but `wait`. */
export class GpuBinding {
  #gpu;
  #powerPreference;
  #handles = new HandleTable();
  /** @type {{kind: number, message: string}[]} */ #faults = [];
  /** @type {GPUDevice[]} */ #devices = [];
  #isLost = false;
  /** Those who wait; each ends with one of WAITED. @type {Set<(status: number) => void>} */
  #waiters = new Set();
  /** @type {GPUFeatureName[]} */ #requiredFeatures = [];
  /** @type {Record<string, number>} */ #requiredLimits = {};
  /** @type {Record<string, number>} */ #constants = {};
  /** @type {GPUBindGroupEntry[]} */ #entries = [];

  /**
   * @param {GPU} gpu
   * @param {PowerPreference | null} [powerPreference] of the adapter; null leaves it to the browser
   */
  constructor(gpu, powerPreference = null) {
    this.#gpu = gpu;
    this.#powerPreference = powerPreference;
  }

  /** Waits that are not over. */
  get waiting() {
    return this.#waiters.size;
  }

  /** GPU objects that the engine holds. */
  get liveHandles() {
    return this.#handles.size;
  }

  /** Frees all that the GPU holds for an engine that will not be called again. */
  destroy() {
    for (const device of this.#devices.splice(0)) device.destroy();
  }

  // --- futures and faults --------------------------------------------------------------------------------

  requestAdapter() {
    const options = this.#powerPreference ? { powerPreference: this.#powerPreference } : {};
    return this.#future(async () => {
      const adapter = await this.#gpu.requestAdapter(options);
      if (!adapter) throw new Error("the browser has no adapter for this page");
      return this.#handles.add(adapter);
    });
  }

  /** @param {number} adapter */
  requestDevice(adapter) {
    const descriptor = { requiredFeatures: this.#requiredFeatures, requiredLimits: this.#requiredLimits };
    this.#requiredFeatures = [];
    this.#requiredLimits = {};
    return this.#future(async () => {
      const device = await this.#handles.get(adapter).requestDevice(descriptor);
      this.#watch(device);
      return this.#handles.add(device);
    });
  }

  /**
   * @param {number} buffer
   * @param {number} offset
   * @param {number} size
   */
  mapForReading(buffer, offset, size) {
    return this.#future(() => this.#handles.get(buffer).mapAsync(GPUMapMode.READ, offset, size));
  }

  /** @param {number} device */
  workDone(device) {
    return this.#future(() => this.#handles.get(device).queue.onSubmittedWorkDone());
  }

  /**
   * @param {number} handle of a future
   * @param {number} timeoutMs negative: none
   * @returns {Promise<number>} one of WAITED
   */
  wait(handle, timeoutMs) {
    if (this.#isLost) return Promise.resolve(WAITED.lost);
    const { promise } = this.#handles.get(handle);
    return new Promise((resolve) => {
      /** @type {ReturnType<typeof setTimeout> | undefined} */
      let timer;
      const end = (/** @type {number} */ status) => {
        clearTimeout(timer);
        this.#waiters.delete(end);
        resolve(status);
      };
      // Not a promise that all of them wait for: each would leave something behind in it, for every token.
      this.#waiters.add(end);
      promise.then(() => end(WAITED.settled));
      if (timeoutMs >= 0) timer = setTimeout(() => end(WAITED.timedOut), timeoutMs);
    });
  }

  /**
   * @param {number} handle of a future that has settled
   * @returns {FutureResult}
   */
  takeResult(handle) {
    return this.#handles.get(handle).result;
  }

  takeFault() {
    return this.#faults.shift() ?? null;
  }

  /**
   * @param {() => Promise<unknown>} start gives a handle, or anything else when there is none to give
   */
  #future(start) {
    /** @type {GpuFuture} */
    const future = {
      promise: Promise.resolve(),
      result: { succeeded: false, value: 0, reason: "it has not settled" },
    };
    const started = (async () => start())();
    future.promise = started.then(
      (value) => {
        future.result = { succeeded: true, value: typeof value === "number" ? value : 0, reason: "" };
      },
      (error) => {
        future.result = { succeeded: false, value: 0, reason: error?.message ?? String(error) };
      },
    );
    return this.#handles.add(future);
  }

  /** @param {GPUDevice} device */
  #watch(device) {
    this.#devices.push(device);
    device.lost.then(({ reason, message }) => {
      const kind = reason === "destroyed" ? FAULTS.destroyed : FAULTS.lost;
      this.#faults.push({ kind, message: message || "the browser gives no reason" });
      this.#isLost = true;
      for (const end of [...this.#waiters]) end(WAITED.lost);
    });
    device.onuncapturederror = (event) => {
      event.preventDefault();
      this.#faults.push({ kind: faultKind(event.error), message: event.error.message });
    };
  }

  // --- what there is -------------------------------------------------------------------------------------

  /** @param {string} name */
  hasLanguageFeature(name) {
    return this.#gpu.wgslLanguageFeatures?.has(name) ?? false;
  }

  /**
   * @param {number} adapter
   * @param {string} name
   */
  hasFeature(adapter, name) {
    return this.#handles.get(adapter).features.has(name);
  }

  /**
   * @param {number} adapter
   * @param {string} name
   * @returns {number} -1 for a limit that this browser does not know
   */
  limit(adapter, name) {
    return this.#handles.get(adapter).limits[name] ?? -1;
  }

  /**
   * @param {number} adapter
   * @param {string} field
   * @returns {string | number} of a field that this browser does not have: 0
   */
  info(adapter, field) {
    return this.#handles.get(adapter).info?.[field] ?? 0;
  }

  /** @param {string} name */
  requireFeature(name) {
    this.#requiredFeatures.push(/** @type {GPUFeatureName} */ (name));
  }

  /**
   * @param {string} name
   * @param {number} value
   */
  requireLimit(name, value) {
    this.#requiredLimits[name] = value;
  }

  // --- objects of a device -------------------------------------------------------------------------------

  /**
   * @param {number} device
   * @param {number} size
   * @param {number} usage
   * @param {string} label
   */
  createBuffer(device, size, usage, label) {
    return this.#handles.add(this.#handles.get(device).createBuffer({ size, usage, label }));
  }

  /**
   * @param {number} device
   * @param {number} size
   * @param {number} usage
   * @param {string} label
   * @returns {{buffer: number, future: number}} the future fails if there is no memory for it
   */
  createLargeBuffer(device, size, usage, label) {
    /** @type {GPUDevice} */
    const owner = this.#handles.get(device);
    owner.pushErrorScope("validation");
    owner.pushErrorScope("out-of-memory");
    const buffer = this.createBuffer(device, size, usage, label);
    const scopes = [owner.popErrorScope(), owner.popErrorScope()];
    const future = this.#future(async () => {
      const [error] = (await Promise.all(scopes)).filter((found) => found !== null);
      if (error) throw error;
    });
    return { buffer, future };
  }

  /**
   * @param {number} device
   * @param {string} code
   */
  createShader(device, code) {
    return this.#handles.add(this.#handles.get(device).createShaderModule({ code }));
  }

  /**
   * @param {string} name
   * @param {number} value
   */
  setConstant(name, value) {
    this.#constants[name] = value;
  }

  /**
   * @param {number} device
   * @param {number} shader
   * @param {string} entryPoint
   * @param {string} label
   */
  createPipeline(device, shader, entryPoint, label) {
    const compute = { module: this.#handles.get(shader), entryPoint, constants: this.#constants };
    this.#constants = {};
    const pipeline = this.#handles.get(device).createComputePipeline({ label, layout: "auto", compute });
    return this.#handles.add(pipeline);
  }

  /**
   * @param {number} pipeline
   * @param {number} group
   */
  bindGroupLayout(pipeline, group) {
    return this.#handles.add(this.#handles.get(pipeline).getBindGroupLayout(group));
  }

  /**
   * @param {number} binding
   * @param {number} buffer
   * @param {number} offset
   * @param {number} size
   */
  bind(binding, buffer, offset, size) {
    this.#entries.push({ binding, resource: { buffer: this.#handles.get(buffer), offset, size } });
  }

  /**
   * @param {number} device
   * @param {number} layout
   * @param {string} label
   */
  createBindGroup(device, layout, label) {
    const entries = this.#entries;
    this.#entries = [];
    const descriptor = { label, layout: this.#handles.get(layout), entries };
    return this.#handles.add(this.#handles.get(device).createBindGroup(descriptor));
  }

  /** @param {number} device */
  createEncoder(device) {
    return this.#handles.add(this.#handles.get(device).createCommandEncoder());
  }

  // --- commands ------------------------------------------------------------------------------------------

  /** @param {number} encoder */
  beginPass(encoder) {
    return this.#handles.add(this.#handles.get(encoder).beginComputePass());
  }

  /**
   * @param {number} pass
   * @param {number} pipeline
   */
  setPipeline(pass, pipeline) {
    this.#handles.get(pass).setPipeline(this.#handles.get(pipeline));
  }

  /**
   * @param {number} pass
   * @param {number} group
   * @param {number} bindGroup
   */
  setBindGroup(pass, group, bindGroup) {
    this.#handles.get(pass).setBindGroup(group, this.#handles.get(bindGroup));
  }

  /**
   * @param {number} pass
   * @param {number} x
   * @param {number} y
   * @param {number} z
   */
  dispatch(pass, x, y, z) {
    this.#handles.get(pass).dispatchWorkgroups(x, y, z);
  }

  /** @param {number} pass */
  endPass(pass) {
    this.#handles.get(pass).end();
  }

  /**
   * @param {number} encoder
   * @param {number} from
   * @param {number} fromOffset
   * @param {number} to
   * @param {number} toOffset
   * @param {number} size
   */
  copy(encoder, from, fromOffset, to, toOffset, size) {
    const [source, target] = [this.#handles.get(from), this.#handles.get(to)];
    this.#handles.get(encoder).copyBufferToBuffer(source, fromOffset, target, toOffset, size);
  }

  /** @param {number} encoder */
  finish(encoder) {
    return this.#handles.add(this.#handles.get(encoder).finish());
  }

  /**
   * @param {number} device
   * @param {number} commands
   */
  submit(device, commands) {
    this.#handles.get(device).queue.submit([this.#handles.get(commands)]);
  }

  /**
   * @param {number} device
   * @param {number} buffer
   * @param {number} offset
   * @param {Uint8Array<ArrayBuffer>} bytes
   */
  write(device, buffer, offset, bytes) {
    this.#handles.get(device).queue.writeBuffer(this.#handles.get(buffer), offset, bytes);
  }

  /**
   * @param {number} buffer
   * @param {number} offset
   * @param {Uint8Array} target
   */
  readMapped(buffer, offset, target) {
    target.set(new Uint8Array(this.#handles.get(buffer).getMappedRange(offset, target.length)));
  }

  /** @param {number} buffer */
  unmap(buffer) {
    this.#handles.get(buffer).unmap();
  }

  /** @param {number} buffer */
  destroyBuffer(buffer) {
    this.#handles.get(buffer).destroy();
  }

  /** @param {number} handle */
  release(handle) {
    this.#handles.release(handle);
  }
}

/** @param {GPUError} error */
function faultKind(error) {
  if (error instanceof GPUOutOfMemoryError) return FAULTS.outOfMemory;
  if (error instanceof GPUValidationError) return FAULTS.validation;
  return FAULTS.internal;
}
