// How long the operations of a tape take on a card, with what running two of them as one spares.
#pragma once

#include <vector>

#include "plan/op_time.h"

namespace vitrine {

// By node. Where this engine's GPU backend runs a product and swiglu as one (PairedOps of
// ops/gpu/linear_swiglu.cpp), swiglu has what the two take longer than the product alone: nothing
// forward; backward, the product that ends in swiglu's passes is as slow as two limits that are
// near each other, the root of the sum of squares. fp8's largest magnitudes that swiglu notes spare
// the products beside it a read of their operand.
std::vector<OpTime> tape_times(const CardModel& card, const Tape& tape);

}  // namespace vitrine
