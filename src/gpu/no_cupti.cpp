// A build without GPU code: nothing to trace.
#include "gpu/cupti_recorder.h"
#include "gpu/gpu.h"

namespace vitrine {

std::unique_ptr<GpuTrace> GpuTrace::start(std::string& why, size_t) {
  why = why_no_gpu();
  return nullptr;
}

}  // namespace vitrine
