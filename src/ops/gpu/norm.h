// The norms' rows by direction; norm_rows.cu puts them in the table.
#pragma once

#include <span>

#include "ops/op.h"

namespace vitrine::gpu {

// What the four norms over the last dimension differ in.
enum class NormKind { kRms, kAddRms, kLayer, kAddLayer };
constexpr bool norm_pending(NormKind k) {
  return k == NormKind::kAddRms || k == NormKind::kAddLayer;
}
constexpr bool norm_centred(NormKind k) {
  return k == NormKind::kLayer || k == NormKind::kAddLayer;
}

template <NormKind kKind>
void norm_forward(const OpCall& call);
template <NormKind kKind>
void norm_backward(const OpCall& call,
                   std::span<const TensorView> dout,
                   std::span<const GradView> din);

void qk_norm_forward(const OpCall& call);
void qk_norm_backward(const OpCall& call,
                      std::span<const TensorView> dout,
                      std::span<const GradView> din);

}  // namespace vitrine::gpu
