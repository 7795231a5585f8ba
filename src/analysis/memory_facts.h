// Memory over time, its peak, and who holds it there: from an allocator's snapshot, from our own
// ledger's samples, or from a profiler's [memory] events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/memory_ledger.h"
#include "timeline/allocator_snapshot.h"
#include "timeline/timeline.h"

namespace vitrine {

// Bytes; the categories and `unknown` sum to `allocated`. `reserved` is 0 where it is not known.
struct MemoryPoint {
  int64_t time_ns = 0;
  int64_t allocated = 0, reserved = 0;
  MemoryByCategory by_category{};
  int64_t unknown = 0;
};

struct MemoryHolder {
  // The innermost frame outside of PyTorch ("forward (lm.py:33)"), an operator, or a category.
  std::string what;
  std::string category;  // memory_category_name(), "unknown" where it is not known
  int64_t bytes = 0;
};

struct MemoryFacts {
  std::string source;  // "allocator snapshot", "[memory] events", "ledger"; "" = nothing known
  bool known = false;  // whether there is a curve
  std::vector<MemoryPoint> curve;  // thinned to at most kMostPoints, its peaks kept
  // 0 = not known.
  int64_t peak_allocated = 0, peak_reserved = 0, peak_time_ns = 0, capacity = 0;
  MemoryPoint at_peak;                // of allocated
  std::vector<MemoryHolder> holders;  // at that peak, largest first, at most kMostHolders
  // Reserved - allocated while reserved is at its peak, at the moment when least is free.
  int64_t fragmentation = 0;
  int64_t largest_free_block = 0;  // inside segments, when the snapshot was taken
  int64_t retries = 0, out_of_memory = 0;
  bool category_known = false, starts_mid_run = false;
  std::vector<std::string> notes;  // what is inferred and how, what is not known

  static constexpr size_t kMostPoints = 2000, kMostHolders = 20;
};

// Of the device whose history allocates most. "Allocated" is what torch.cuda.memory_allocated says:
// a block counts until its free is requested. Memory that was in use before the history counts from
// its beginning, by what the segments hold at its end. Categories are inferred
// (allocation_categories.h), and `notes` say so. Without a history nothing is known but the notes.
MemoryFacts measure_memory(const AllocatorSnapshot& snapshot);

// Our own runs' samples, whose categories are exact; else [memory] events of the device with most
// of them, whose categories stay unknown.
MemoryFacts measure_memory(const RankTimeline& timeline);

}  // namespace vitrine
