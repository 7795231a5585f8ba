// What the driver says of a rank's GPU while a trace is recorded, as counters beside the spans.
#pragma once

#include <atomic>
#include <thread>

#include "gpu/nvml.h"
#include "timeline/recorder.h"

namespace vitrine {

// Samples on a thread of its own, every 100 ms while `recorder` records: utilisation (%), memory
// used (bytes), power and its limit (W), SM clock (MHz), temperature (C), PCIe and NVLink traffic
// (bytes/s). `index` counts the machine's GPUs. Where NVML cannot be used there are no counters.
class GpuCounters {
 public:
  GpuCounters(Recorder& recorder, int index);
  ~GpuCounters();
  GpuCounters(const GpuCounters&) = delete;
  GpuCounters& operator=(const GpuCounters&) = delete;

 private:
  void run(int index);

  Recorder& recorder_;
  std::unique_ptr<Nvml> nvml_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace vitrine
