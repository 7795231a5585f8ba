// Asks the system for large pages behind large columns: touching fresh small ones, page by page,
// can cost more than filling them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <vector>

namespace vitrine {

// After reserve(). Only a hint: nothing depends on it.
template <typename T>
void prefer_huge_pages(std::vector<T>& column) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(column.data());
  const uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge;
  const uintptr_t last = (begin + column.capacity() * sizeof(T)) / kHuge * kHuge;
  if (first < last) {
    (void)madvise(reinterpret_cast<void*>(first),
                  last - first,
                  MADV_HUGEPAGE);  // NOLINT(performance-no-int-to-ptr)
  }
#endif
}

}  // namespace vitrine
