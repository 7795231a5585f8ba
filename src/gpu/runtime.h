// Streams, events, errors and scratch memory for code that issues work to a GPU. Included by GPU
// code only; everything else sees gpu/gpu.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gpu/vendor.h"

namespace vitrine::gpu {

// Throws DeviceError, or OutOfMemory when that is what `code` says: device, rank where known, call,
// the vendor's sentence.
void check(cudaError_t code, const char* call, const char* file, int line);
#define VITRINE_GPU_CHECK(call) ::vitrine::gpu::check((call), #call, __FILE__, __LINE__)
// After a kernel launch: refused launches (shape, shared memory, architecture) show here.
#define VITRINE_GPU_LAUNCHED(kernel) \
  ::vitrine::gpu::check(cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)

class Stream {
 public:
  Stream() = default;
  // Does not wait for the legacy default stream. `high_priority` for communication lanes.
  static Stream make(bool high_priority);
  ~Stream();
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudaStream_t get() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

class Event {
 public:
  Event() = default;
  static Event make(bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudaEvent_t get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  cudaEvent_t handle_ = nullptr;
};

// Numbers that decide launch shapes; read once a device.
struct Limits {
  int device = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t shared_bytes_a_block = 0;  // the opt-in maximum
  size_t l2_bytes = 0, memory_bytes = 0;
};
const Limits& limits();  // of the calling thread's device

// The stream of the lane that the calling thread issues into: what every launch, library call and
// copy of an operation uses. The default stream where no lane was entered (tests of kernels).
cudaStream_t stream();
// Sets the device and stream of the calling thread.
void use_stream(int device, cudaStream_t stream);

// Scratch for the work issued next in the calling thread's stream: at least `bytes`, 256-byte
// aligned, not initialised. Reused by the next call on the same stream, which is in order behind
// this one; so ask once an operation and cut the piece. Grows, never shrinks.
void* workspace(size_t bytes);
// Bytes held by all workspaces of this process.
size_t workspace_bytes();
// Host memory that stays pinned until the process ends, for small numbers; thread-safe.
void* pinned(size_t bytes);

}  // namespace vitrine::gpu
