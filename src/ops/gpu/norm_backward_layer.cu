// Backward of layer_norm, with and without a pending residual add.
#include "ops/gpu/norm_backward.cuh"

namespace vitrine::gpu {

template void norm_backward<NormKind::kLayer>(const OpCall&,
                                              std::span<const TensorView>,
                                              std::span<const GradView>);
template void norm_backward<NormKind::kAddLayer>(const OpCall&,
                                                 std::span<const TensorView>,
                                                 std::span<const GradView>);

}  // namespace vitrine::gpu
