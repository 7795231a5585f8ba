// Memory of one rank by arithmetic, from the same tables that the engine allocates by.
#pragma once

#include "core/memory_ledger.h"
#include "schedule/action.h"

namespace vitrine {

// Parameters, gradients and optimizer state of rank `place`, padding included: what the ledger
// shows between steps, to the byte.
MemoryByCategory model_state_bytes(const ParameterTable& table,
                                   const Strategy& strategy,
                                   const std::vector<int>& blocks);
// Of the above, what rounding shards up to whole chunks adds to ZeRO's arithmetic.
int64_t padding_bytes(const ParameterTable& table,
                      const Strategy& strategy,
                      const std::vector<int>& blocks);
// ZeRO's arithmetic on the elements alone, rounded up to whole bytes: e.g. 2 P + 14 P / N of a bf16
// model with bf16 gradients at stage 2, 2 P + 6 P / N where masters and moments are bf16 too.
int64_t zero_arithmetic_bytes(const ParameterTable& table, const Strategy& strategy);

}  // namespace vitrine
