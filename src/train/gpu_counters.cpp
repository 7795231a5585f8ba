// Sampling of NVML into a recorder.
#include "train/gpu_counters.h"

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

namespace vitrine {

GpuCounters::GpuCounters(Recorder& recorder, int index) : recorder_(recorder) {
  std::string why;
  nvml_ = Nvml::open(why);
  if (!nvml_) {
    recorder.set_info("gpu.counters", why);
    return;
  }
  thread_ = std::thread([this, index] { run(index); });
}

GpuCounters::~GpuCounters() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void GpuCounters::run(int index) {
  struct Counter {
    const char* name;
    double GpuSample::*field;
    double factor;
  };
  const Counter counters[] = {
      {"GPU utilization (%)", &GpuSample::busy, 100},
      {"GPU memory used (bytes)", &GpuSample::used_bytes, 1},
      {"GPU power (W)", &GpuSample::power_w, 1},
      {"GPU power limit (W)", &GpuSample::power_limit_w, 1},
      {"GPU SM clock (MHz)", &GpuSample::sm_clock_hz, 1e-6},
      {"GPU temperature (C)", &GpuSample::temperature_c, 1},
      {"PCIe sent (bytes/s)", &GpuSample::pcie_sent_bytes_per_s, 1},
      {"PCIe received (bytes/s)", &GpuSample::pcie_received_bytes_per_s, 1},
      {"NVLink sent (bytes/s)", &GpuSample::nvlink_sent_bytes_per_s, 1},
      {"NVLink received (bytes/s)", &GpuSample::nvlink_received_bytes_per_s, 1},
  };
  std::vector<StringId> names;
  for (const Counter& counter : counters) names.push_back(recorder_.intern(counter.name));
  while (!stop_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (!recorder_.recording()) continue;
    for (const GpuSample& sample : nvml_->sample()) {
      if (sample.index != index) continue;
      for (size_t i = 0; i < names.size(); ++i) {
        const double value = sample.*counters[i].field;
        if (std::isfinite(value)) recorder_.counter(names[i], value * counters[i].factor);
      }
    }
  }
}

}  // namespace vitrine
