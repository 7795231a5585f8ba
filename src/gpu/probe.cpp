// Versions, copies and peers; products are in probe_product.cpp. Each time is the median of seven
// after two, between events.
#include "gpu/probe.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "core/error.h"
#include "gpu/probe_product.h"
#include "gpu/runtime.h"

namespace vitrine {
namespace {

constexpr size_t kDeviceBytes = size_t{1} << 30, kHostBytes = size_t{256} << 20;

std::string two_parts(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string three_parts(size_t version, size_t first, size_t second) {
  return std::to_string(version / first) + "." + std::to_string(version % first / second) + "." +
         std::to_string(version % second);
}

// What is installed beside this program, which may be newer than what it was built with. The
// library stays loaded: unloading CUDA libraries is not safe.
template <typename Function>
Function symbol(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  return handle ? reinterpret_cast<Function>(dlsym(handle, name)) : nullptr;
}

std::string cudnn_version() {
  const auto get = symbol<size_t (*)()>("libcudnn.so.9", "cudnnGetVersion");
  return get ? three_parts(get(), 10000, 100) : "";
}

std::string nccl_version() {
  const auto get = symbol<int (*)(int*)>("libnccl.so.2", "ncclGetVersion");
  int version = 0;
  if (!get || get(&version) != 0) return "";
  return three_parts(static_cast<size_t>(version), 10000, 100);
}

double median_seconds(const std::function<void()>& issue) {
  const gpu::Event start = gpu::Event::make(true), end = gpu::Event::make(true);
  std::vector<double> all;
  for (int i = -2; i < 7; ++i) {
    VITRINE_GPU_CHECK(cudaEventRecord(start.get(), gpu::stream()));
    issue();
    VITRINE_GPU_CHECK(cudaEventRecord(end.get(), gpu::stream()));
    VITRINE_GPU_CHECK(cudaEventSynchronize(end.get()));
    float milliseconds = 0;
    VITRINE_GPU_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), end.get()));
    if (i >= 0) all.push_back(static_cast<double>(milliseconds) * 1e-3);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

struct DeviceFree {
  void operator()(void* p) const { cudaFree(p); }
};
struct HostFree {
  void operator()(void* p) const { cudaFreeHost(p); }
};
std::unique_ptr<void, DeviceFree> device_memory(size_t bytes) {
  void* data = nullptr;
  VITRINE_GPU_CHECK(cudaMalloc(&data, bytes));
  return std::unique_ptr<void, DeviceFree>(data);
}

HostLink host_link(void* device, size_t bytes, const std::function<void()>& ready) {
  void* data = nullptr;
  VITRINE_GPU_CHECK(cudaMallocHost(&data, bytes));
  const std::unique_ptr<void, HostFree> host(data);
  const auto rate = [&](void* into, const void* out_of, cudaMemcpyKind kind) {
    ready();
    return static_cast<double>(bytes) / median_seconds([&] {
             VITRINE_GPU_CHECK(cudaMemcpyAsync(into, out_of, bytes, kind, gpu::stream()));
           });
  };
  HostLink link;
  link.download_bytes_per_s = rate(host.get(), device, cudaMemcpyDeviceToHost);
  link.upload_bytes_per_s = rate(device, host.get(), cudaMemcpyHostToDevice);
  return link;
}

void probe_copies(GpuProbe& probe) {
  // A quarter of what is free at most, in whole MiB, so that a busy GPU is probed too.
  const size_t bytes = std::min(kDeviceBytes, probe.free_bytes / 4 >> 20 << 20);
  const auto from = device_memory(bytes), to = device_memory(bytes);
  gpu::fill_random(CUDA_R_32F, from.get(), static_cast<int64_t>(bytes / 4), 5);
  probe.copy_bytes_per_s =
      2.0 * static_cast<double>(bytes) / median_seconds([&] {
        VITRINE_GPU_CHECK(
            cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, gpu::stream()));
      });
  const HostLink link = host_link(from.get(), std::min(bytes, kHostBytes), [] {});
  probe.download_bytes_per_s = link.download_bytes_per_s;
  probe.upload_bytes_per_s = link.upload_bytes_per_s;
}

void probe_products(GpuProbe& probe) {
  // f32 of the largest edge: three matrices of 256 MiB, and room for the library.
  const int edge = probe.free_bytes > (size_t{2} << 30) ? 8192 : 4096;
  for (const char* dtype : {"f32", "tf32", "bf16", "f16", "f8_e4m3"}) {
    ProductProbe product;
    product.dtype = dtype;
    gpu::probe_product(product, edge);
    probe.products.push_back(product);
  }
  judge_products(probe.products);
}

GpuProbe probe_one(const GpuDescription& gpu) {
  GpuProbe probe;
  probe.gpu = gpu;
  try {
    gpu::use_stream(gpu.index, nullptr);
    VITRINE_GPU_CHECK(cudaMemGetInfo(&probe.free_bytes, &probe.total_bytes));
    probe_copies(probe);
    probe_products(probe);
  } catch (const Error& error) {
    probe.failure = error.what();
  }
  return probe;
}

PeerProbe probe_pair(int from, int to) {
  PeerProbe peer{from, to, false, 0};
  int possible = 0;
  VITRINE_GPU_CHECK(cudaDeviceCanAccessPeer(&possible, from, to));
  peer.access = possible != 0;
  gpu::use_stream(to, nullptr);
  const auto there = device_memory(kHostBytes);
  gpu::use_stream(from, nullptr);
  const auto here = device_memory(kHostBytes);
  gpu::fill_random(CUDA_R_32F, here.get(), static_cast<int64_t>(kHostBytes / 4), 7);
  if (peer.access) {
    const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();
    else
      VITRINE_GPU_CHECK(code);
  }
  peer.bytes_per_s = static_cast<double>(kHostBytes) / median_seconds([&] {
                       VITRINE_GPU_CHECK(cudaMemcpyPeerAsync(
                           there.get(), to, here.get(), from, kHostBytes, gpu::stream()));
                     });
  return peer;
}

}  // namespace

GpuProbe probe_gpu(int index) {
  const std::vector<GpuDescription> gpus = gpu_devices();
  if (index < 0 || static_cast<size_t>(index) >= gpus.size()) {
    throw DeviceError("there is no GPU " + std::to_string(index) + ", this process can see " +
                      std::to_string(gpus.size()));
  }
  return probe_one(gpus[static_cast<size_t>(index)]);
}

HostLink probe_host_link(int index, const std::function<void()>& ready) {
  gpu::use_stream(index, nullptr);
  const auto memory = device_memory(kHostBytes);
  return host_link(memory.get(), kHostBytes, ready);
}

ProbeReport probe_gpus() {
  const std::vector<GpuDescription> gpus = gpu_devices();
  ProbeReport report;
  int driver = 0, runtime = 0;
  VITRINE_GPU_CHECK(cudaDriverGetVersion(&driver));
  VITRINE_GPU_CHECK(cudaRuntimeGetVersion(&runtime));
  report.driver = two_parts(driver);
  report.runtime = two_parts(runtime);
  report.cublaslt = three_parts(cublasLtGetVersion(), 10000, 100);
  report.cudnn = cudnn_version();
  report.nccl = nccl_version();
  for (const GpuDescription& gpu : gpus) report.gpus.push_back(probe_one(gpu));
  for (const GpuProbe& a : report.gpus) {
    for (const GpuProbe& b : report.gpus) {
      if (&a == &b || !a.failure.empty() || !b.failure.empty()) continue;
      report.peers.push_back(probe_pair(a.gpu.index, b.gpu.index));
    }
  }
  gpu::use_stream(gpus.front().index, nullptr);
  return report;
}

}  // namespace vitrine
