// Errors, streams, scratch of the calling thread's GPU.
#include "gpu/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "gpu/capture_graph.h"
#include "gpu/issued.h"

namespace vitrine::gpu {
namespace {

struct Current {
  int device = -1;
  cudaStream_t stream = nullptr;
  uint64_t asked_for = 0;
};
thread_local Current current;

std::string place() {
  std::string text = "GPU";
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) text += " " + std::to_string(device);
  const char* rank = std::getenv("RANK");
  if (rank) text += " (rank " + std::string(rank) + ")";
  return text;
}

struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};
std::mutex workspaces_mutex;
std::map<std::pair<int, cudaStream_t>, Workspace>& workspaces() {
  static auto* all = new std::map<std::pair<int, cudaStream_t>, Workspace>;
  return *all;
}

}  // namespace

void check(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  const std::string text = place() + ": " + call + " failed (" + cudaGetErrorName(code) + ": " +
                           cudaGetErrorString(code) + ") at " + file + ":" + std::to_string(line);
  cudaGetLastError();  // the next call starts clean where the error allows it
  if (code == cudaErrorMemoryAllocation) throw OutOfMemory(text);
  if (code == cudaErrorNoKernelImageForDevice) {
    throw DeviceError(text +
                      "; this build has no code for this GPU's architecture: configure with " +
                      "-DVITRINE_CUDA_ARCHITECTURES for it");
  }
  throw DeviceError(text);
}

Stream Stream::make(bool high_priority) {
  int least = 0, greatest = 0;
  VITRINE_GPU_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  Stream stream;
  VITRINE_GPU_CHECK(cudaStreamCreateWithPriority(
      &stream.handle_, cudaStreamNonBlocking, high_priority ? greatest : least));
  return stream;
}

Stream::~Stream() {
  if (handle_) cudaStreamDestroy(handle_);
}

Event Event::make(bool timed) {
  Event event;
  VITRINE_GPU_CHECK(
      cudaEventCreateWithFlags(&event.handle_, timed ? cudaEventDefault : cudaEventDisableTiming));
  return event;
}

Event::~Event() {
  if (handle_) cudaEventDestroy(handle_);
}

const Limits& limits() {
  int device = 0;
  VITRINE_GPU_CHECK(cudaGetDevice(&device));
  static std::mutex mutex;
  static auto* all = new std::map<int, Limits>;
  const std::lock_guard lock(mutex);
  const auto it = all->find(device);
  if (it != all->end()) return it->second;
  cudaDeviceProp p{};
  VITRINE_GPU_CHECK(cudaGetDeviceProperties(&p, device));
  Limits& limits = (*all)[device];
  limits.device = device;
  limits.name = p.name;
  limits.major = p.major;
  limits.minor = p.minor;
  limits.multiprocessors = p.multiProcessorCount;
  limits.shared_bytes_a_block = p.sharedMemPerBlockOptin;
  limits.l2_bytes = static_cast<size_t>(p.l2CacheSize);
  limits.memory_bytes = p.totalGlobalMem;
  return limits;
}

cudaStream_t stream() {
  ++current.asked_for;
  return current.stream;
}

uint64_t streams_asked_for() { return current.asked_for; }

void use_stream(int device, cudaStream_t stream) {
  if (current.device != device) {
    VITRINE_GPU_CHECK(cudaSetDevice(device));
    current.device = device;
  }
  current.stream = stream;
  ++current.asked_for;
}

void* workspace(size_t bytes) {
  int device = 0;
  VITRINE_GPU_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(workspaces_mutex);
  Workspace& own = workspaces()[{device, current.stream}];
  if (own.bytes >= bytes) return own.data;
  constexpr size_t kStep = size_t{1} << 20;
  const size_t size = std::max((bytes + kStep - 1) / kStep * kStep, 2 * kStep);
  if (own.data) {
    VITRINE_GPU_CHECK(cudaStreamSynchronize(current.stream));
    VITRINE_GPU_CHECK(cudaFree(own.data));
    own = {};
  }
  VITRINE_GPU_CHECK(cudaMalloc(&own.data, size));
  own.bytes = size;
  return own.data;
}

const void* workspace_now() {
  int device = 0;
  VITRINE_GPU_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(workspaces_mutex);
  const auto own = workspaces().find({device, current.stream});
  return own == workspaces().end() ? nullptr : own->second.data;
}

size_t workspace_bytes() {
  const std::lock_guard lock(workspaces_mutex);
  size_t sum = 0;
  for (const auto& [key, workspace] : workspaces()) sum += workspace.bytes;
  return sum;
}

void* pinned(size_t bytes) {
  static std::mutex mutex;
  static char* page = nullptr;
  static size_t left = 0;
  const std::lock_guard lock(mutex);
  const size_t size = (bytes + 63) / 64 * 64;
  if (size > left) {
    left = std::max(size, size_t{64} << 10);
    VITRINE_GPU_CHECK(cudaMallocHost(reinterpret_cast<void**>(&page), left));
  }
  void* out = page;
  page += size;
  left -= size;
  return out;
}

}  // namespace vitrine::gpu
