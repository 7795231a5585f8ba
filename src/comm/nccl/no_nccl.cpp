// A build without GPU code: links, and says what is missing.
#include "comm/nccl/nccl.h"
#include "core/error.h"
#include "gpu/gpu.h"

namespace vitrine {

std::unique_ptr<World> make_nccl_world(const RankEnvironment&, std::chrono::milliseconds) {
  throw DeviceError("no NCCL: " + why_no_gpu());
}

}  // namespace vitrine
