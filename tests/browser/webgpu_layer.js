// A worker that runs the tests of native/webgpu/tests, one after another, and answers with what they say.
//
// Counterpart: test_webgpu_layer.py, which starts it. `data` of the first message: {origin, glue, wasm}.

addEventListener("message", async ({ data: { origin, glue, wasm } }) => {
  try {
    const { GpuBinding } = await import(`${origin}/headrace/worker/gpu_binding.js`);
    const { startInstance } = await import(`${origin}/headrace/worker/instance.js`);
    /** @type {GPUDevice[]} */
    const devices = [];
    const { requestDevice } = GPUAdapter.prototype;
    GPUAdapter.prototype.requestDevice = async function (...args) {
      const device = await requestDevice.apply(this, args);
      devices.push(device);
      return device;
    };

    const gpu = new GpuBinding(navigator.gpu);
    const { exports, memory } = await startInstance({ glue, wasm }, 1, gpu);
    const textAt = (pointer) => {
      const bytes = new Uint8Array(memory.buffer, pointer >>> 0);
      return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
    };
    const results = {};
    const names = Object.keys(exports).filter((name) => name.startsWith("hr_test_"));
    const order = ["hr_test_device", ...names.filter((name) => !/_device(_lost)?$/.test(name)), "hr_test_device_lost"];
    for (const name of order) {
      if (name === "hr_test_device_lost") devices[0].destroy();
      const before = { handles: gpu.liveHandles, bytes: memory.buffer.byteLength };
      const problem = await WebAssembly.promising(exports[name])();
      const grown = { handles: gpu.liveHandles - before.handles, bytes: memory.buffer.byteLength - before.bytes };
      results[name.slice("hr_test_".length)] = { problem: problem === 0 ? null : textAt(problem), ...grown };
    }
    postMessage({ results });
  } catch (error) {
    postMessage({ error: `${error.message} ${error.stack}` });
  }
});
