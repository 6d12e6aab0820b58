// A worker that calls llama.cpp's test-backend-ops, compiled to WebAssembly, on the page's WebGPU adapter.
//
// Counterparts: backend_program.py, which starts it and reads what it tells; native/webgpu/tests/backend_ops.cpp, which it
// calls. `data` of a first message: {origin, glue, wasm}; of every further one: the arguments of a run.
//
// Tells {line} for whatever is printed, {status} when the program is ready (0) and at the end of a run, or {error}.

/** @type {Promise<(args: string[]) => Promise<number>> | null} */
let program = null;

addEventListener("message", async ({ data }) => {
  try {
    if (program) {
      const run = await program;
      postMessage({ status: await run(data) });
    } else {
      program = start(data);
      await program;
      postMessage({ status: 0 });
    }
  } catch (error) {
    postMessage({ error: `${error.message}` });
  }
});

async function start({ origin, glue, wasm }) {
  const { GpuBinding } = await import(`${origin}/headrace/worker/gpu_binding.js`);
  const { startInstance } = await import(`${origin}/headrace/worker/instance.js`);
  const gpu = new GpuBinding(navigator.gpu);
  const { exports, module, memory, log } = await startInstance({ glue, wasm }, 1, gpu);
  // The engine's last lines are kept for its errors; here every line counts, at once.
  log.push = (...lines) => {
    for (const line of lines) postMessage({ line });
    return 0;
  };
  const main = WebAssembly.promising(exports.hr_backend_ops);
  return async (args) => {
    const bytes = new TextEncoder().encode(args.join("\n"));
    const pointer = module._malloc(bytes.length + 1) >>> 0;
    const text = new Uint8Array(memory.buffer, pointer, bytes.length + 1);
    text.set(bytes);
    text[bytes.length] = 0;
    const status = await main(pointer);
    module._free(pointer);
    return status;
  };
}
