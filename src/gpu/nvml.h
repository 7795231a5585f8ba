// What the GPUs of this machine are doing, from the driver's management library; no CUDA needed.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace vitrine {

// NaN where the GPU or its driver does not say.
struct GpuSample {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  int index = 0;  // of all GPUs of the machine, whatever this process may use
  std::string name;
  double busy = kUnknown;         // share of the last moments in which a kernel ran
  double memory_busy = kUnknown;  // ... in which memory was read or written
  double used_bytes = kUnknown, total_bytes = kUnknown;
  double power_w = kUnknown, power_limit_w = kUnknown;
  double sm_clock_hz = kUnknown;
  double temperature_c = kUnknown;
  double pcie_sent_bytes_per_s = kUnknown, pcie_received_bytes_per_s = kUnknown;
  // Since the driver was loaded, all links together; and since the sample before (unknown in the
  // first).
  double nvlink_sent_bytes = kUnknown, nvlink_received_bytes = kUnknown;
  double nvlink_sent_bytes_per_s = kUnknown, nvlink_received_bytes_per_s = kUnknown;
};

// NVML, loaded at run time, so that programs run where there is no driver. One thread at a time.
class Nvml {
 public:
  // Null where it can't be used; `why` then says so in a sentence.
  static std::unique_ptr<Nvml> open(std::string& why);
  virtual ~Nvml() = default;
  // One a GPU. Takes some 50 ms a GPU, since PCIe traffic is counted over a moment.
  virtual std::vector<GpuSample> sample() = 0;
};

}  // namespace vitrine
