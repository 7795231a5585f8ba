// What an engine computes on: a device, its table of operations, and its step arithmetic.
#pragma once

#include <memory>

#include "core/device.h"
#include "ops/op.h"
#include "optim/step_math.h"
#include "run/graph_cache.h"

namespace vitrine {

struct Execution {
  std::shared_ptr<Device> device;
  const Backend* backend = nullptr;
  std::shared_ptr<StepMath> math;
  Graphs graphs = Graphs::kAuto;  // of a GPU
};

// The CPU's fast rows.
Execution cpu_execution();
// GPU `index`; the calling thread enters its compute lane. Throws DeviceError (gpu/gpu.h).
Execution gpu_execution(int index);

}  // namespace vitrine
