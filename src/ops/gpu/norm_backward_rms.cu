// Backward of rms_norm, with and without a pending residual add.
#include "ops/gpu/norm_backward.cuh"

namespace vitrine::gpu {

template void norm_backward<NormKind::kRms>(const OpCall&,
                                            std::span<const TensorView>,
                                            std::span<const GradView>);
template void norm_backward<NormKind::kAddRms>(const OpCall&,
                                               std::span<const TensorView>,
                                               std::span<const GradView>);

}  // namespace vitrine::gpu
