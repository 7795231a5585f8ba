// GPUs as the rest of the program sees them, whether or not this build has them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace vitrine {

struct GpuDescription {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0;
};

// "" when this build can use GPUs and there is one; otherwise a sentence that says what is missing
// (no GPU code in this build, no driver, driver too old, no device).
std::string why_no_gpu();
// Those that this process can see. Throws DeviceError with why_no_gpu().
std::vector<GpuDescription> gpu_devices();
// GPU `index` as a device with one stream a lane; lanes above 0 have priority. Throws DeviceError
// when it is not there or its architecture is older than 8.0.
std::unique_ptr<Device> make_gpu_device(int index);

}  // namespace vitrine
