// What the browser does for webgpu_cpp.h: flat functions over handles, imported from JavaScript.
//
// Counterparts: webgpu_library.js names them for the linker, web/worker/gpu_binding.js does the work on navigator.gpu.
// Not webgpu.h: no structures cross this line, so that JavaScript knows no layouts. A structure's fields are handed
// over one by one before the call that uses them.
//
// A handle is a positive number, 0 is none. Sizes and offsets in bytes travel as double: exact up to 2^53, and no
// 64-bit integers are needed. Features, limits and language features go by the names that WebGPU gives them.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

using hr_gpu_handle = int32_t;

// A future ends when its promise has settled; what it gave is asked for afterwards, once.
hr_gpu_handle hr_gpu_request_adapter();
hr_gpu_handle hr_gpu_request_device(hr_gpu_handle adapter);
hr_gpu_handle hr_gpu_map_for_reading(hr_gpu_handle buffer, double offset, double size);
hr_gpu_handle hr_gpu_work_done(hr_gpu_handle device);

// Suspends the caller until the future has settled (1), the time is over (2) or the device is lost (3). The only
// function here that waits.
int32_t hr_gpu_wait(hr_gpu_handle future, double timeout_ms);
// Whether it succeeded; then *value is the handle that it gave, if any. Otherwise the reason is written as text.
int32_t hr_gpu_future_result(hr_gpu_handle future, hr_gpu_handle * value, char * reason, size_t capacity);

// The next thing that went wrong without being asked: 0 none, else a hr_gpu_fault, its message written as text.
int32_t hr_gpu_take_fault(char * message, size_t capacity);
enum hr_gpu_fault {
    hr_gpu_lost = 1,
    hr_gpu_destroyed,
    hr_gpu_out_of_memory,
    hr_gpu_validation,
    hr_gpu_internal
};

int32_t hr_gpu_has_language_feature(const char * name);
int32_t hr_gpu_has_feature(hr_gpu_handle adapter, const char * name);
double  hr_gpu_limit(hr_gpu_handle adapter, const char * name); // -1 if this browser has no such limit
double  hr_gpu_info_number(hr_gpu_handle adapter, const char * field);
void    hr_gpu_info_text(hr_gpu_handle adapter, const char * field, char * text, size_t capacity);

// Of the device that is requested next.
void hr_gpu_require_feature(const char * name);
void hr_gpu_require_limit(const char * name, double value);

hr_gpu_handle hr_gpu_create_buffer(hr_gpu_handle device, double size, int32_t usage, const char * label);
// A future that fails if there was no memory for the buffer.
hr_gpu_handle hr_gpu_create_large_buffer(hr_gpu_handle device, double size, int32_t usage, const char * label,
                                         hr_gpu_handle * buffer);
hr_gpu_handle hr_gpu_create_shader(hr_gpu_handle device, const char * code);
void          hr_gpu_set_constant(const char * name, double value); // of the pipeline that is created next
hr_gpu_handle hr_gpu_create_pipeline(hr_gpu_handle device, hr_gpu_handle shader, const char * entry_point,
                                     const char * label);
hr_gpu_handle hr_gpu_bind_group_layout(hr_gpu_handle pipeline, int32_t group);
void hr_gpu_bind(int32_t binding, hr_gpu_handle buffer, double offset, double size); // of the next bind group
hr_gpu_handle hr_gpu_create_bind_group(hr_gpu_handle device, hr_gpu_handle layout, const char * label);
hr_gpu_handle hr_gpu_create_encoder(hr_gpu_handle device);

hr_gpu_handle hr_gpu_begin_pass(hr_gpu_handle encoder);
void          hr_gpu_set_pipeline(hr_gpu_handle pass, hr_gpu_handle pipeline);
void          hr_gpu_set_bind_group(hr_gpu_handle pass, int32_t group, hr_gpu_handle bind_group);
void          hr_gpu_dispatch(hr_gpu_handle pass, int32_t x, int32_t y, int32_t z);
void          hr_gpu_end_pass(hr_gpu_handle pass);
void          hr_gpu_copy(hr_gpu_handle encoder, hr_gpu_handle from, double from_offset, hr_gpu_handle to,
                          double to_offset, double size);
hr_gpu_handle hr_gpu_finish(hr_gpu_handle encoder);

void hr_gpu_submit(hr_gpu_handle device, hr_gpu_handle commands);
void hr_gpu_write(hr_gpu_handle device, hr_gpu_handle buffer, double offset, const void * data, size_t size);
void hr_gpu_read_mapped(hr_gpu_handle buffer, double offset, void * data, size_t size);
void hr_gpu_unmap(hr_gpu_handle buffer);
void hr_gpu_destroy_buffer(hr_gpu_handle buffer);

// Forgets a handle; what it stood for lives on while the browser needs it.
void hr_gpu_release(hr_gpu_handle handle);

} // extern "C"
