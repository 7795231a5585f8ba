// Checks of indices that only their values can fail: token ids and targets.
#pragma once

#include "ops/op.h"

namespace vitrine {

// Throws ShapeError naming the id, its place and the vocabulary when an id is outside [0,
// vocabulary). With `negative_ok` (targets) negative ids pass.
void check_ids(const char* op, const TensorView& ids, int64_t vocabulary, bool negative_ok);

}  // namespace vitrine
