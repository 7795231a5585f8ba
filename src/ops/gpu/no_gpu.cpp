// A build without GPU code.
#include "core/error.h"
#include "gpu/gpu.h"
#include "ops/op.h"

namespace vitrine {

Backend& gpu_backend() { throw DeviceError(why_no_gpu()); }

}  // namespace vitrine
