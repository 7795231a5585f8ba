// What a step does to the caches between two of its operations.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace vitrine {

// In a step an operation finds its operands where what ran since they were written has left them,
// mostly not in a cache: every thread reads and writes its share of 64 MiB, a word a cache line.
// (memset would go past the caches and leave what is in them.)
class CacheFlush {
 public:
  static constexpr size_t kBytes = size_t{64} << 20;

  void operator()(size_t bytes = kBytes) {
    constexpr int64_t kLine = 64;
    parallel_for(static_cast<int64_t>(bytes) / kLine, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++words_[static_cast<size_t>(i) * kWords];
    });
  }

 private:
  static constexpr size_t kWords = 64 / sizeof(uint64_t);
  std::vector<uint64_t> words_ = std::vector<uint64_t>(kBytes / sizeof(uint64_t));
};

}  // namespace vitrine
