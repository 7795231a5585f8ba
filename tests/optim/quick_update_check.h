// Quick roots and quotients of AdamW against the correctly rounded ones, on the GPU.
#pragma once

#include <cstdint>

namespace vitrine::test {

struct QuickMisses {
  int64_t roots = 0, quotients = 0, corrected = 0;  // values whose bits differ
};

// Roots: all significands at even and odd powers. Quotients: all significands of the denominator by
// 18 numerators each. Corrected: all significands of a root by 64 bias corrections.
QuickMisses count_quick_misses();

}  // namespace vitrine::test
