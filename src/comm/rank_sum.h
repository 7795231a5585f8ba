// Element-wise sum over ranks in rank order, the arithmetic of reduce_scatter.
#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace vitrine {

// out[i] = ((pieces[0][i] + pieces[1][i]) + pieces[2][i]) + ..., accumulated in fp32 (fp64 for f64;
// i32 and u8 wrap around) and rounded once to `dtype`. `out` may be one of the pieces.
void rank_order_sum(std::span<const void* const> pieces, void* out, int64_t count, DType dtype);

}  // namespace vitrine
