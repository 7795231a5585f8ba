// The two executions.
#include "run/execution.h"

#include "gpu/gpu.h"

namespace vitrine {

Execution cpu_execution() {
  return {std::shared_ptr<Device>(&host_device(), [](Device*) {}),
          &cpu_backend(),
          make_host_step_math(),
          Graphs::kOff};
}

Execution gpu_execution(int index) {
  Execution execution;
  execution.device = make_gpu_device(index);
  execution.device->enter_lane(0);
  execution.backend = &gpu_backend();
  execution.math = make_gpu_step_math();
  return execution;
}

}  // namespace vitrine
