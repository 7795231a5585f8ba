// The rows of the normalisations.
#include "ops/gpu/gradients.cuh"
#include "ops/gpu/norm.h"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

template <NormKind kKind>
OpKernels norm_row() {
  return {norm_forward<kKind>, guarded_async<norm_backward<kKind>>};
}

}  // namespace

void add_norm_rows(Backend& backend) {
  backend.add("rms_norm", norm_row<NormKind::kRms>());
  backend.add("add_rms_norm", norm_row<NormKind::kAddRms>());
  backend.add("layer_norm", norm_row<NormKind::kLayer>());
  backend.add("add_layer_norm", norm_row<NormKind::kAddLayer>());
  backend.add("qk_norm", {qk_norm_forward, guarded_async<qk_norm_backward>});
}

}  // namespace vitrine::gpu
