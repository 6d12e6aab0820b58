// The functions of browser_gpu.h for Emscripten's linker: pointers become views and texts, nothing else.
//
// Counterpart: web/worker/gpu_binding.js, an object of whose class the host puts into Module.webgpu before the engine
// asks for a GPU. Linked by --js-library, which tsc cannot check: no decision is taken here.

addToLibrary({
  hr_gpu_request_adapter: () => Module["webgpu"].requestAdapter(),
  hr_gpu_request_device: (adapter) => Module["webgpu"].requestDevice(adapter),
  hr_gpu_map_for_reading: (buffer, offset, size) => Module["webgpu"].mapForReading(buffer, offset, size),
  hr_gpu_work_done: (device) => Module["webgpu"].workDone(device),

  // Where the browser can suspend WebAssembly, the host wraps this one: see web/worker/instance.js.
  hr_gpu_wait: (future, timeoutMs) => Module["webgpu"].wait(future, timeoutMs),

  hr_gpu_future_result__deps: ["$stringToUTF8"],
  hr_gpu_future_result: (future, value, reason, capacity) => {
    const result = Module["webgpu"].takeResult(future);
    HEAP32[value >>> 2] = result.value;
    stringToUTF8(result.reason, reason, capacity);
    return result.succeeded ? 1 : 0;
  },

  hr_gpu_take_fault__deps: ["$stringToUTF8"],
  hr_gpu_take_fault: (message, capacity) => {
    const fault = Module["webgpu"].takeFault();
    if (!fault) return 0;
    stringToUTF8(fault.message, message, capacity);
    return fault.kind;
  },

  hr_gpu_has_language_feature__deps: ["$UTF8ToString"],
  hr_gpu_has_language_feature: (name) => (Module["webgpu"].hasLanguageFeature(UTF8ToString(name)) ? 1 : 0),
  hr_gpu_has_feature__deps: ["$UTF8ToString"],
  hr_gpu_has_feature: (adapter, name) => (Module["webgpu"].hasFeature(adapter, UTF8ToString(name)) ? 1 : 0),
  hr_gpu_limit__deps: ["$UTF8ToString"],
  hr_gpu_limit: (adapter, name) => Module["webgpu"].limit(adapter, UTF8ToString(name)),
  hr_gpu_info_number__deps: ["$UTF8ToString"],
  hr_gpu_info_number: (adapter, field) => Number(Module["webgpu"].info(adapter, UTF8ToString(field))),
  hr_gpu_info_text__deps: ["$UTF8ToString", "$stringToUTF8"],
  hr_gpu_info_text: (adapter, field, text, capacity) => {
    stringToUTF8(String(Module["webgpu"].info(adapter, UTF8ToString(field))), text, capacity);
  },

  hr_gpu_require_feature__deps: ["$UTF8ToString"],
  hr_gpu_require_feature: (name) => Module["webgpu"].requireFeature(UTF8ToString(name)),
  hr_gpu_require_limit__deps: ["$UTF8ToString"],
  hr_gpu_require_limit: (name, value) => Module["webgpu"].requireLimit(UTF8ToString(name), value),

  hr_gpu_create_buffer__deps: ["$UTF8ToString"],
  hr_gpu_create_buffer: (device, size, usage, label) =>
    Module["webgpu"].createBuffer(device, size, usage, UTF8ToString(label)),
  hr_gpu_create_large_buffer__deps: ["$UTF8ToString"],
  hr_gpu_create_large_buffer: (device, size, usage, label, buffer) => {
    const made = Module["webgpu"].createLargeBuffer(device, size, usage, UTF8ToString(label));
    HEAP32[buffer >>> 2] = made.buffer;
    return made.future;
  },
  hr_gpu_create_shader__deps: ["$UTF8ToString"],
  hr_gpu_create_shader: (device, code) => Module["webgpu"].createShader(device, UTF8ToString(code)),
  hr_gpu_set_constant__deps: ["$UTF8ToString"],
  hr_gpu_set_constant: (name, value) => Module["webgpu"].setConstant(UTF8ToString(name), value),
  hr_gpu_create_pipeline__deps: ["$UTF8ToString"],
  hr_gpu_create_pipeline: (device, shader, entryPoint, label) =>
    Module["webgpu"].createPipeline(device, shader, UTF8ToString(entryPoint), UTF8ToString(label)),
  hr_gpu_bind_group_layout: (pipeline, group) => Module["webgpu"].bindGroupLayout(pipeline, group),
  hr_gpu_bind: (binding, buffer, offset, size) => Module["webgpu"].bind(binding, buffer, offset, size),
  hr_gpu_create_bind_group__deps: ["$UTF8ToString"],
  hr_gpu_create_bind_group: (device, layout, label) =>
    Module["webgpu"].createBindGroup(device, layout, UTF8ToString(label)),
  hr_gpu_create_encoder: (device) => Module["webgpu"].createEncoder(device),

  hr_gpu_begin_pass: (encoder) => Module["webgpu"].beginPass(encoder),
  hr_gpu_set_pipeline: (pass, pipeline) => Module["webgpu"].setPipeline(pass, pipeline),
  hr_gpu_set_bind_group: (pass, group, bindGroup) => Module["webgpu"].setBindGroup(pass, group, bindGroup),
  hr_gpu_dispatch: (pass, x, y, z) => Module["webgpu"].dispatch(pass, x, y, z),
  hr_gpu_end_pass: (pass) => Module["webgpu"].endPass(pass),
  hr_gpu_copy: (encoder, from, fromOffset, to, toOffset, size) =>
    Module["webgpu"].copy(encoder, from, fromOffset, to, toOffset, size),
  hr_gpu_finish: (encoder) => Module["webgpu"].finish(encoder),

  hr_gpu_submit: (device, commands) => Module["webgpu"].submit(device, commands),
  hr_gpu_write: (device, buffer, offset, data, size) => {
    const start = data >>> 0;
    Module["webgpu"].write(device, buffer, offset, HEAPU8.subarray(start, start + (size >>> 0)));
  },
  hr_gpu_read_mapped: (buffer, offset, data, size) => {
    const start = data >>> 0;
    Module["webgpu"].readMapped(buffer, offset, HEAPU8.subarray(start, start + (size >>> 0)));
  },
  hr_gpu_unmap: (buffer) => Module["webgpu"].unmap(buffer),
  hr_gpu_destroy_buffer: (buffer) => Module["webgpu"].destroyBuffer(buffer),
  hr_gpu_release: (handle) => Module["webgpu"].release(handle),
});
