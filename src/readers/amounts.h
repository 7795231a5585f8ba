// Numbers of bytes and elements of files that are not trusted, kept where sums of them fit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timeline/allocator_snapshot.h"
#include "timeline/timeline.h"

namespace vitrine {

// No card has 16 TiB, and no file tells of an exbibyte moved: more is damage.
class Amounts {
 public:
  static constexpr int64_t kMost = int64_t{1} << 44;  // of one number
  // Of one kind of number in a file: eight bytes an element, and it fits many times.
  static constexpr int64_t kMostSum = int64_t{1} << 56;

  // The nearest number in [least, most].
  int64_t bounded(int64_t value, int64_t least, int64_t most = kMost);
  // The same of a number that is summed with others: `sum` holds the magnitudes so far, and what
  // would lead beyond kMostSum becomes 0.
  int64_t summed(int64_t value, int64_t least, int64_t& sum);

  // All numbers of bytes and elements of a timeline or snapshot.
  void bound(RankTimeline& timeline);
  void bound(AllocatorSnapshot& snapshot);

  // One sentence with the count of the numbers that were changed, where some were.
  void warn(std::vector<std::string>& warnings) const;

 private:
  int64_t changed_ = 0;
};

}  // namespace vitrine
