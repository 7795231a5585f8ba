// What a measured time of an operation depends on besides its cost: its shape as a few logarithms,
// by which calibration records and the planner looks up.
#pragma once

#include <vector>

#include "ops/op.h"

namespace vitrine {

// log2 of: rows, row length, and width of the weight (0: none); of attention: independent heads,
// length, head size, then 4 where it is causal and 4 where heads of one group lie apart in memory.
// Vectors of one operation have one length.
std::vector<double> op_features(const OpDef& op,
                                const Attrs& attrs,
                                std::span<const TensorType> in);

// What a time is proportional to where shapes are alike: flops of products, bytes of others.
double op_work(const Cost& cost);

}  // namespace vitrine
