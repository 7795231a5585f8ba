// What linears in fp8 keep under a strategy.
#pragma once

#include "ops/fp8.h"
#include "schedule/strategy.h"

namespace vitrine {

// Of a model's body. Copies of weights would undo what stage 3 and pipelines (several micro-batches
// in flight) spare; under recomputation nothing is kept, since it would have to be made again.
Fp8Linears fp8_linears(bool enabled, const Strategy& strategy);

}  // namespace vitrine
