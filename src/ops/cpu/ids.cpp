// Checks of token ids and targets.
#include "ops/cpu/ids.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

void check_ids(const char* op, const TensorView& ids, int64_t vocabulary, bool negative_ok) {
  const int32_t* id = ids.as<int32_t>();
  const int64_t count = ids.elements();
  int32_t lowest = 0, highest = -1;
  for (int64_t i = 0; i < count; ++i) {
    lowest = std::min(lowest, id[i]);
    highest = std::max(highest, id[i]);
  }
  if (highest < vocabulary && (negative_ok || lowest >= 0)) return;
  for (int64_t i = 0; i < count; ++i) {
    if (id[i] < vocabulary && (negative_ok || id[i] >= 0)) continue;
    throw ShapeError(format("%s: id %d at place %lld of %s is outside the vocabulary [0, %lld)%s",
                            op,
                            id[i],
                            static_cast<long long>(i),
                            ids.shape.str().c_str(),
                            static_cast<long long>(vocabulary),
                            negative_ok ? "; use a negative target to ignore a row" : ""));
  }
}

}  // namespace vitrine
