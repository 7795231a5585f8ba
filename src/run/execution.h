// What an engine computes on: a device, its table of operations, and its step arithmetic.
#pragma once

#include <memory>

#include "core/device.h"
#include "ops/op.h"
#include "optim/step_math.h"

namespace vitrine {

struct Execution {
  std::shared_ptr<Device> device;
  const Backend* backend = nullptr;
  std::shared_ptr<StepMath> math;
};

// The CPU's fast rows.
Execution cpu_execution();
// GPU `index`; the calling thread enters its compute lane. Throws DeviceError (gpu/gpu.h).
Execution gpu_execution(int index);

}  // namespace vitrine
