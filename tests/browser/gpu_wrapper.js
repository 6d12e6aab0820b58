// Makes the real WebGPU adapter of a page or worker look like a poorer one, and lets a test watch and lose its
// devices. What a device then refuses is refused by the browser itself, not here.
//
// Counterpart: gpu_wrapper.py, which puts it before the scripts of a page and of the engine's worker. A classic
// script and a module at once, hence no import or export. Not a fake: every call reaches the browser.

/**
 * @typedef {object} GpuTraits see the class of that name in gpu_wrapper.py
 * @property {"real" | "none"} adapter
 * @property {"real" | "rejects"} device
 * @property {Record<string, number>} limits
 * @property {string[]} withoutFeatures
 * @property {Record<string, unknown>} info
 * @property {{find: string, replace: string}[]} shaderEdits
 * @property {{call: string, count: number, reason: "unknown" | "destroyed"} | null} loseAt
 */

/** @param {GpuTraits} traits */
globalThis.wrapGpu = (traits) => {
  "use strict";
  if (typeof GPU === "undefined") return;
  const scope = globalThis;
  const own = (object, name, value) =>
    Object.defineProperty(object, name, { value, configurable: true, enumerable: true, writable: true });

  // --- what a test sees and does, as globalThis.wrappedGpu --------------------------------------------

  /** @type {Map<GPUDevice, (loss: {reason: string, message: string}) => void>} living devices */
  const devices = new Map();
  let trap = traits.loseAt;

  const wrappedGpu = {
    /** How often each method was called, of all devices and their queues. @type {Record<string, number>} */
    calls: {},
    /** The most bytes that one call of it was about. @type {Record<string, number>} */
    largest: {},
    /** Sum of the same. @type {Record<string, number>} */
    bytes: {},
    /** Messages of errors that no error scope caught. @type {string[]} */
    errors: [],
    /** Devices given out. */
    devices: 0,
    /** Losses made here. */
    losses: 0,

    /**
     * Loses every living device now: its calls do nothing from here on, as after any loss.
     * @param {"unknown" | "destroyed"} reason what `device.lost` tells
     */
    lose(reason) {
      trap = null;
      for (const [device, tell] of devices) {
        devices.delete(device);
        wrappedGpu.losses += 1;
        tell({ reason, message: "lost by gpu_wrapper.js" });
        GPUDevice.prototype.destroy.call(device);
      }
    },

    /** Loses them at the count-th call of a method from now on. */
    loseAt(call, count, reason) {
      trap = { call, count: (wrappedGpu.calls[call] ?? 0) + count, reason };
    },
  };
  scope.wrappedGpu = wrappedGpu;

  // What waits is called before it is counted, everything else after: a loss then meets it while it waits.
  const count = (call, bytes = 0) => {
    const { calls, largest, bytes: sums } = wrappedGpu;
    calls[call] = (calls[call] ?? 0) + 1;
    largest[call] = Math.max(largest[call] ?? 0, bytes);
    sums[call] = (sums[call] ?? 0) + bytes;
    if (trap && trap.call === call && calls[call] >= trap.count) wrappedGpu.lose(trap.reason);
  };

  // --- the adapter --------------------------------------------------------------------------------------

  const requestAdapter = GPU.prototype.requestAdapter;
  GPU.prototype.requestAdapter = async function (...options) {
    if (traits.adapter === "none") return null;
    const adapter = await requestAdapter.apply(this, options);
    if (adapter) wrapAdapter(adapter);
    return adapter;
  };

  /** @param {GPUAdapter} adapter */
  function wrapAdapter(adapter) {
    const limits = cappedLimits(adapter.limits);
    const features = new Set([...adapter.features].filter((name) => !traits.withoutFeatures.includes(name)));
    own(adapter, "limits", limits);
    own(adapter, "features", features);
    own(adapter, "info", Object.freeze({ ...copied(adapter.info), ...traits.info }));
    own(adapter, "requestDevice", async (descriptor = {}) => {
      if (traits.device === "rejects") throw new DOMException("gpu_wrapper.js: no device", "OperationError");
      for (const feature of descriptor.requiredFeatures ?? []) {
        if (!features.has(feature)) throw new TypeError(`gpu_wrapper.js: no feature ${feature}`);
      }
      for (const [name, value] of Object.entries(descriptor.requiredLimits ?? {})) {
        if (value !== undefined && isBetter(name, value, limits[name])) {
          throw new DOMException(`gpu_wrapper.js: ${name} of ${value}, not ${limits[name]}`, "OperationError");
        }
      }
      const device = await GPUAdapter.prototype.requestDevice.call(adapter, descriptor);
      wrapDevice(device);
      return device;
    });
  }

  /** @param {GPUSupportedLimits} real */
  function cappedLimits(real) {
    const limits = copied(real);
    for (const [name, cap] of Object.entries(traits.limits)) {
      if (!(name in limits)) throw new Error(`gpu_wrapper.js: there is no limit ${name}`);
      if (!isBetter(name, cap, limits[name])) limits[name] = cap;
    }
    return Object.freeze(limits);
  }

  const isBetter = (name, value, than) => (name.startsWith("min") ? value < than : value > than);

  /** A platform object's values, which are getters of its prototype. */
  function copied(object) {
    const copy = {};
    for (const name in object) copy[name] = object[name];
    return copy;
  }

  // --- its devices --------------------------------------------------------------------------------------

  /** @param {GPUDevice} device */
  function wrapDevice(device) {
    for (const [name, cap] of Object.entries(traits.limits)) {
      // A device has WebGPU's own default limits at least; nothing would refuse what lies between.
      if (isBetter(name, device.limits[name], cap)) {
        throw new Error(`gpu_wrapper.js: ${name} of ${cap} cannot be enforced, it is below WebGPU's default`);
      }
    }
    wrappedGpu.devices += 1;
    const { promise, resolve } = deferred();
    device.lost.then(({ reason, message }) => {
      devices.delete(device);
      resolve({ reason, message });
    });
    devices.set(device, resolve);
    own(device, "lost", promise);
    device.addEventListener("uncapturederror", ({ error }) => wrappedGpu.errors.push(error.message));

    own(device, "createShaderModule", (descriptor) => {
      count("createShaderModule");
      const code = traits.shaderEdits.reduce(
        (text, { find, replace }) => text.replace(new RegExp(find, "g"), replace),
        descriptor.code,
      );
      return GPUDevice.prototype.createShaderModule.call(device, { ...descriptor, code });
    });
    own(device, "createBuffer", (descriptor) => {
      count("createBuffer", descriptor.size);
      const buffer = GPUDevice.prototype.createBuffer.call(device, descriptor);
      own(buffer, "mapAsync", (...given) => {
        const mapped = GPUBuffer.prototype.mapAsync.apply(buffer, given);
        count("mapAsync");
        return mapped;
      });
      return buffer;
    });
    for (const name of ["createComputePipeline", "createComputePipelineAsync", "createBindGroup"]) {
      own(device, name, (...given) => {
        count(name);
        return GPUDevice.prototype[name].apply(device, given);
      });
    }
    const { queue } = device;
    own(queue, "submit", (buffers) => {
      count("submit");
      return GPUQueue.prototype.submit.call(queue, buffers);
    });
    own(queue, "onSubmittedWorkDone", () => {
      const done = GPUQueue.prototype.onSubmittedWorkDone.call(queue);
      count("onSubmittedWorkDone");
      return done;
    });
    own(queue, "writeBuffer", (buffer, offset, data, start = 0, size = undefined) => {
      const unit = data.BYTES_PER_ELEMENT ?? 1;
      count("writeBuffer", size === undefined ? data.byteLength - start * unit : size * unit);
      return GPUQueue.prototype.writeBuffer.call(queue, buffer, offset, data, start, size);
    });
  }

  function deferred() {
    /** @type {(value: unknown) => void} */ let resolve = () => {};
    const promise = new Promise((settle) => {
      resolve = settle;
    });
    return { promise, resolve };
  }
};
