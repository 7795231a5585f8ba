// A build without GPU code: links, and says what is missing.
#include "core/error.h"
#include "gpu/gpu.h"

namespace vitrine {

std::string why_no_gpu() {
  return "this build has no GPU code: it was configured without the CUDA toolkit (install it and "
         "configure again with -DVITRINE_CUDA=ON)";
}

std::vector<GpuDescription> gpu_devices() { throw DeviceError(why_no_gpu()); }

std::unique_ptr<Device> make_gpu_device(int) { throw DeviceError(why_no_gpu()); }

}  // namespace vitrine
