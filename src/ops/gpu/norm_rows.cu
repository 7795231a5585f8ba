// The rows of the normalisations.
#include "ops/gpu/norm.h"
#include "ops/gpu/rows.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

template <NormKind kKind>
OpKernels norm_row() {
  return {norm_forward<kKind>, when_wanted<norm_backward<kKind>>};
}

}  // namespace

void add_norm_rows(Backend& backend) {
  backend.add("rms_norm", norm_row<NormKind::kRms>());
  backend.add("add_rms_norm", norm_row<NormKind::kAddRms>());
  backend.add("layer_norm", norm_row<NormKind::kLayer>());
  backend.add("add_layer_norm", norm_row<NormKind::kAddLayer>());
  backend.add("qk_norm", {qk_norm_forward, when_wanted<qk_norm_backward>});
}

}  // namespace vitrine::gpu
