// What this machine's GPUs can do, found by doing it: memory, copies, products by dtype, peers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/gpu.h"

namespace vitrine {

// Matrix products of one dtype. A small product of random numbers is compared with fp64 of the host
// on the same rounded inputs; then a large one is timed, random numbers again.
struct ProductProbe {
  std::string dtype;       // "f32", "tf32", "bf16", "f16", "f8_e4m3"
  std::string refused;     // why there is no product; "" when there is one
  double error = -1;       // |got - expected| / |expected|, Frobenius
  double tolerance = 0;    // what the rounding of this dtype explains
  double flops_per_s = 0;  // of edge x edge x edge
  int edge = 0;
  bool emulated = false;  // right, but no faster than f32
  bool right() const { return refused.empty() && error >= 0 && error <= tolerance; }
  bool native() const { return right() && !emulated; }
};

struct GpuProbe {
  GpuDescription gpu;
  std::string failure;  // what stopped the probe; what comes after it is not measured
  size_t free_bytes = 0, total_bytes = 0;
  // Bytes a second; `copy` counts those read and those written, the others one way, pinned memory.
  double copy_bytes_per_s = 0, upload_bytes_per_s = 0, download_bytes_per_s = 0;
  std::vector<ProductProbe> products;
};

// From one GPU's memory to another's.
struct PeerProbe {
  int from = 0, to = 0;
  bool access = false;  // directly; else through the host
  double bytes_per_s = 0;
};

struct ProbeReport {
  // "13.0", "9.14.0", ...; "" where the library is not there.
  std::string driver, runtime, cublaslt, cudnn, nccl;
  std::vector<GpuProbe> gpus;
  std::vector<PeerProbe> peers;  // every ordered pair
};

// GPU `index` alone: what fails is noted in `failure`. Throws DeviceError where it is not there.
GpuProbe probe_gpu(int index);
// Its host link again, as GpuProbe's, while others measure theirs: `ready` is called before each of
// the two directions, with all memory at hand.
struct HostLink {
  double upload_bytes_per_s = 0, download_bytes_per_s = 0;
};
HostLink probe_host_link(int index, const std::function<void()>& ready);

// About a second a GPU and a tenth a pair. What fails on one GPU is noted in its `failure`. Throws
// DeviceError with why_no_gpu() where there is none.
ProbeReport probe_gpus();

// Sets `emulated` of every product that is not at least a tenth faster than f32's.
void judge_products(std::vector<ProductProbe>& products);
// What training would compute in: "bf16", else "f16" (its loss must be scaled), else "f32"; "" when
// no product is right.
std::string choose_precision(const GpuProbe& probe);

}  // namespace vitrine
