// A build without GPU code.
#include "core/error.h"
#include "gpu/gpu.h"
#include "optim/gpu/bench_gpu_update.h"
#include "optim/step_math.h"

namespace vitrine {

std::unique_ptr<StepMath> make_gpu_step_math() { throw DeviceError(why_no_gpu()); }
std::vector<GpuUpdateTiming> bench_gpu_update(int, int) { throw DeviceError(why_no_gpu()); }

}  // namespace vitrine
