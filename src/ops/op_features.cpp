// Shapes as logarithms.
#include "ops/op_features.h"

#include <algorithm>
#include <cmath>

namespace vitrine {
namespace {

double log2_of(int64_t value) {
  return std::log2(static_cast<double>(std::max<int64_t>(1, value)));
}

}  // namespace

std::vector<double> op_features(const OpDef& op,
                                const Attrs& attrs,
                                std::span<const TensorType> in) {
  const Shape& x = in[0].shape;
  if (op.name == "attention") {
    const int axis = static_cast<int>(attrs.integer("axis"));
    const int64_t length = x[axis];
    const int64_t heads = attrs.integer("heads");
    // Distances of 4 keep kinds apart without forbidding one to stand for the other.
    return {log2_of(length > 0 ? x.rows() / length * heads : 0),
            log2_of(length),
            log2_of(attrs.integer("head_dim")),
            attrs.integer("causal", 0) == 1 ? 4.0 : 0.0,
            axis + 2 < x.rank() ? 4.0 : 0.0};
  }
  if (op.name == "embedding")
    return {log2_of(x.elements()), log2_of(in[1].shape[-1]), log2_of(in[1].shape[0])};
  const bool weight = in.size() > 1 && in[1].shape.rank() == 2 && op.name.starts_with("linear");
  return {log2_of(x.rank() > 0 ? x.rows() : 1),
          log2_of(x.rank() > 0 ? x[-1] : 1),
          weight ? log2_of(in[1].shape[0]) : 0.0};
}

double op_work(const Cost& cost) { return std::max(1.0, cost.matmul ? cost.flops : cost.bytes); }

}  // namespace vitrine
