// What `vitrine calibrate --device gpu` measured on the GPUs of a machine, kept under
// "measured_gpus" in the profile that it writes; plan/fit_gpus.h makes constants of it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace vitrine {

// All GPUs measured at the same time, as they train; each number is the slowest one's.
struct MeasuredGpus {
  std::string name;  // as the driver names each of them
  int count = 1, multiprocessors = 0;
  int architecture = 0;  // 90: 9.0
  double memory_bytes = 0;
  // Single calls: within a GPU read plus written, to and from pinned host memory one way.
  double copy_bytes_per_s = 0, upload_bytes_per_s = 0, download_bytes_per_s = 0;
  double host_link_bytes_per_s() const {
    return std::min(upload_bytes_per_s, download_bytes_per_s);
  }
  double issue_ns = 0;  // of the host, an operation

  // One large product, alone.
  struct Peak {
    std::string dtype;  // as ProductProbe's: "f32", "tf32", "bf16", "f16", "f8_e4m3"
    double flops_per_s = 0;
  };
  std::vector<Peak> peaks;

  // The engine's linear, [rows, in] x [out, in]^T, back to back on a hot card, in bf16; with `fp8`
  // rounded to 8 bits in the call. Backward: both gradients.
  struct Product {
    bool fp8 = false;
    double rows = 0, in = 0, out = 0;
    double forward_ns = 0, backward_ns = 0;
  };
  std::vector<Product> products;

  // Operations bound by memory, and passes of the optimizer.
  struct Pass {
    std::string op;
    bool backward = false;
    double bytes = 0, ns = 0;
  };
  std::vector<Pass> passes;

  // Between all of them, `bytes` of the whole: "all_gather" and "reduce_scatter" by NCCL;
  // "gather_shared" and "reduce_shared" by copy engines, where they can reach each other.
  struct Collective {
    std::string kind;
    double bytes = 0, ns = 0;
  };
  std::vector<Collective> collectives;
};

Json measured_gpus_json(const MeasuredGpus& gpus);
// Throws ConfigError naming the key; for values that are not positive too.
MeasuredGpus measured_gpus_from_json(const Json& json, const std::string& where);

}  // namespace vitrine
