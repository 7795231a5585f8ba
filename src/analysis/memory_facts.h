// Memory of one card over time: the curve, its peak, who holds it, and what is lost to fragments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/memory_ledger.h"
#include "timeline/allocator_snapshot.h"
#include "timeline/timeline.h"

namespace vitrine {

// Bytes; the categories and `unknown` add up to `allocated`.
struct MemoryPoint {
  int64_t time_ns = 0;
  int64_t allocated = 0, reserved = 0;
  MemoryByCategory by_category{};
  int64_t unknown = 0;
};

struct MemoryHolder {
  std::string what;  // innermost frame of user or model code, operator, or block
  std::string category;
  int64_t bytes = 0;
};

struct MemoryFacts {
  std::string source;  // "allocator snapshot", "[memory] events", "ledger"
  bool known = false;
  std::vector<MemoryPoint> curve;  // thinned to at most 2000 points, peaks kept
  int64_t peak_allocated = 0, peak_reserved = 0, peak_time_ns = 0;
  int64_t capacity = 0;  // 0 = not known
  MemoryPoint at_peak;
  std::vector<MemoryHolder> holders;  // at the peak, largest first, at most 20
  int64_t fragmentation = 0;          // reserved - allocated at the peak of reserved
  int64_t largest_free_block = 0;
  int64_t retries = 0, out_of_memory = 0;  // of the allocator, as far as it tells
  bool category_known = false, starts_mid_run = false;
  std::vector<std::string> notes;  // what is inferred and how, what is not known
};

MemoryFacts measure_memory(const AllocatorSnapshot& snapshot);
// Own runs' samples (exact categories), else the allocations of [memory] events.
MemoryFacts measure_memory(const RankTimeline& timeline);

}  // namespace vitrine
