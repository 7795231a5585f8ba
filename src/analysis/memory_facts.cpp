// The curve of an allocator's history, and of the samples and events of timelines.
#include "analysis/memory_facts.h"

#include <algorithm>
#include <map>

#include "analysis/allocation_categories.h"
#include "analysis/memory_curve.h"
#include "core/format.h"

namespace vitrine {

namespace {

using Action = AllocatorEvent::Action;

std::string gib(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string category_name(int8_t category) {
  return category < 0 ? "unknown" : memory_category_name(static_cast<MemoryCategory>(category));
}

void add_bytes(MemoryPoint& point, int8_t category, int64_t bytes) {
  point.allocated += bytes;
  (category < 0 ? point.unknown : point.by_category[static_cast<size_t>(category)]) += bytes;
}

// The innermost frame outside of PyTorch and Python's own library, else the innermost one.
std::string frame_text(const AllocatorSnapshot& snapshot, int32_t stack) {
  if (stack < 0) return "";
  const auto& frames = snapshot.stacks[static_cast<size_t>(stack)];
  const AllocatorFrame* chosen = &snapshot.frames[frames.front()];
  for (const uint32_t index : frames) {
    const std::string& file = snapshot.strings[snapshot.frames[index].file];
    if (file.find("site-packages/") != std::string::npos ||
        file.find("dist-packages/") != std::string::npos ||
        file.find("/torch/") != std::string::npos || file.find("lib/python3") != std::string::npos)
      continue;
    chosen = &snapshot.frames[index];
    break;
  }
  const std::string& file = snapshot.strings[chosen->file];
  return format("%s (%s:%d)",
                snapshot.strings[chosen->function].c_str(),
                file.substr(file.rfind('/') + 1).c_str(),
                chosen->line);
}

class Holders {
 public:
  void add(const std::string& what, const std::string& category, int64_t bytes) {
    sums_[{what, category}] += bytes;
  }
  std::vector<MemoryHolder> largest() const {
    std::vector<MemoryHolder> out;
    for (const auto& [key, bytes] : sums_) {
      if (bytes > 0) out.push_back({key.first, key.second, bytes});
    }
    std::stable_sort(out.begin(), out.end(), [](const MemoryHolder& a, const MemoryHolder& b) {
      return a.bytes > b.bytes;
    });
    if (out.size() > MemoryFacts::kMostHolders) out.resize(MemoryFacts::kMostHolders);
    return out;
  }

 private:
  std::map<std::pair<std::string, std::string>, int64_t> sums_;
};

void set_peaks(MemoryFacts& facts, const std::vector<MemoryPoint>& points) {
  for (const MemoryPoint& point : points) {
    if (point.allocated > facts.peak_allocated) {
      facts.peak_allocated = point.allocated;
      facts.peak_time_ns = point.time_ns;
      facts.at_peak = point;
    }
  }
  set_reserved(facts, points);
  facts.curve = thin(points, MemoryFacts::kMostPoints);
  facts.known = !points.empty();
}

bool from_empty_cache(const AllocatorSnapshot& snapshot, const AllocatorEvent& event) {
  if (event.stack < 0) return false;
  for (const uint32_t index : snapshot.stacks[static_cast<size_t>(event.stack)]) {
    if (snapshot.strings[snapshot.frames[index].function] == "empty_cache") return true;
  }
  return false;
}

// The device whose history allocates most; -1 = no history.
int64_t busiest_device(const AllocatorSnapshot& snapshot) {
  int64_t best = -1, best_bytes = -1;
  for (size_t device = 0; device < snapshot.history.size(); ++device) {
    int64_t bytes = 0;
    for (const AllocatorEvent& event : snapshot.history[device]) {
      bytes += event.action == Action::kAlloc ? event.size_bytes : 0;
    }
    if (!snapshot.history[device].empty() && bytes > best_bytes) {
      best = static_cast<int64_t>(device);
      best_bytes = bytes;
    }
  }
  return best;
}

// One device's history, walked once.
class SnapshotMeasure {
 public:
  SnapshotMeasure(const AllocatorSnapshot& snapshot, size_t device)
      : snapshot_(snapshot),
        device_(device),
        events_(snapshot.history[device]),
        history_(categorise(snapshot, device)),
        ended_(events_.size() + 1, kNone) {
    for (size_t i = 0; i < history_.allocations.size(); ++i) {
      ended_[history_.allocations[i].end] = i;
    }
  }

  MemoryFacts run() {
    facts_.source = "allocator snapshot";
    facts_.category_known = history_.has_backward || history_.has_optimizer;
    find_start();
    walk();
    find_holders();
    free_blocks();
    notes();
    return std::move(facts_);
  }

 private:
  static int64_t reserved_change(const AllocatorEvent& event) {
    switch (event.action) {
      case Action::kSegmentAlloc:
      case Action::kSegmentMap:
        return event.size_bytes;
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        return -event.size_bytes;
      default:
        return 0;
    }
  }

  int64_t allocated_change(size_t i) const {
    if (events_[i].action == Action::kAlloc) return events_[i].size_bytes;
    if (ended_[i] != kNone) return -history_.allocations[ended_[i]].bytes;
    // Of a block from before the history.
    return events_[i].action == Action::kFreeRequested ? -events_[i].size_bytes : 0;
  }

  // What was there before the history: the end, which the segments tell, less all that changed.
  void find_start() {
    int64_t reserved = 0, allocated = 0;
    for (const AllocatorSegment& segment : snapshot_.segments) {
      if (segment.device != static_cast<int32_t>(device_)) continue;
      reserved += segment.total_bytes;
      allocated += segment.allocated_bytes;
    }
    const bool segments_known = reserved > 0;
    int64_t change = 0, lowest = 0;
    for (size_t i = 0; i < events_.size(); ++i) {
      reserved -= reserved_change(events_[i]);
      change += allocated_change(i);
      lowest = std::min(lowest, change);
    }
    start_allocated_ = segments_known ? allocated - change : -lowest;
    if (start_allocated_ < 0) {
      facts_.notes.push_back(
          format("the history and the segments disagree by %s: the curve is lifted to be positive",
                 gib(-start_allocated_).c_str()));
      start_allocated_ = 0;
    }
    start_allocated_ = std::max(start_allocated_, -lowest);
    start_reserved_ = segments_known ? std::max<int64_t>(reserved, 0) : 0;
    facts_.starts_mid_run = snapshot_.history_wrapped || start_allocated_ > 0;
  }

  void walk() {
    MemoryPoint now;
    now.reserved = start_reserved_;
    add_bytes(now, -1, start_allocated_);
    std::vector<MemoryPoint> points;
    points.reserve(events_.size());
    int64_t highest = -1;
    size_t next = 0;
    for (size_t i = 0; i < events_.size(); ++i) {
      const AllocatorEvent& event = events_[i];
      now.time_ns = event.time_ns;
      if (event.action == Action::kAlloc) {
        add_bytes(now, history_.allocations[next++].category, event.size_bytes);
      } else {
        const int8_t category =
            ended_[i] == kNone ? int8_t{-1} : history_.allocations[ended_[i]].category;
        add_bytes(now, category, allocated_change(i));
      }
      now.reserved += reserved_change(event);
      count_troubles(i);
      points.push_back(now);
      if (now.allocated > highest) highest = now.allocated, peak_event_ = i;
    }
    set_peaks(facts_, points);
  }

  void count_troubles(size_t i) {
    const AllocatorEvent& event = events_[i];
    facts_.out_of_memory += event.action == Action::kOutOfMemory;
    // The cache is given back and asked for anew at once: cudaMalloc had failed.
    if (event.action == Action::kSegmentAlloc && i > 0 &&
        events_[i - 1].action == Action::kSegmentFree &&
        !from_empty_cache(snapshot_, events_[i - 1])) {
      ++facts_.retries;
    }
  }

  void find_holders() {
    Holders holders;
    int64_t known = 0;
    for (const Allocation& a : history_.allocations) {
      if (a.begin > peak_event_ || a.end <= peak_event_) continue;
      std::string what = frame_text(snapshot_, a.stack);
      if (what.empty()) {
        what = history_.phases[a.begin] == StepPhase::kBackward
                   ? "autograd engine (no Python frames)"
                   : "no frames recorded";
      }
      holders.add(what, category_name(a.category), a.bytes);
      known += a.bytes;
    }
    holders.add("in use before the history begins", "unknown", facts_.peak_allocated - known);
    facts_.holders = holders.largest();
  }

  void free_blocks() {
    for (const AllocatorSegment& segment : snapshot_.segments) {
      if (segment.device != static_cast<int32_t>(device_)) continue;
      for (const AllocatorBlock& block : segment.blocks) {
        if (block.state == AllocatorBlock::State::kInactive) {
          facts_.largest_free_block = std::max(facts_.largest_free_block, block.size_bytes);
        }
      }
    }
  }

  void notes() {
    auto& notes = facts_.notes;
    notes.push_back(
        facts_.category_known
            ? "categories are inferred from frames, annotations and lifetimes: the allocator does "
              "not record what its blocks are for"
            : "no backward pass or optimizer step is seen in the history: categories are not known "
              "but for what frames alone tell");
    if (start_allocated_ > 0) {
      notes.push_back(format("%s were in use before the history begins: their category is unknown",
                             gib(start_allocated_).c_str()));
    }
    if (snapshot_.history_wrapped) notes.push_back("the curve starts in the middle of the run");
    if (facts_.at_peak.unknown > start_allocated_) {
      notes.push_back(format("%s at the peak fit none of the rules",
                             gib(facts_.at_peak.unknown - start_allocated_).c_str()));
    }
    if (facts_.retries > 0) {
      notes.push_back(format(
          "%lld retries of cudaMalloc are inferred from segments freed and allocated at once",
          static_cast<long long>(facts_.retries)));
    }
    notes.push_back("the card's capacity is not in a snapshot");
    if (snapshot_.history.size() > 1) {
      notes.push_back(format("device %zu is measured, whose history allocates most", device_));
    }
  }

  const AllocatorSnapshot& snapshot_;
  const size_t device_;
  const std::vector<AllocatorEvent>& events_;
  const AllocationHistory history_;
  static constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> ended_;  // by event: the allocation that it ends
  MemoryFacts facts_;
  int64_t start_allocated_ = 0, start_reserved_ = 0;
  size_t peak_event_ = 0;
};

}  // namespace

MemoryFacts measure_memory(const AllocatorSnapshot& snapshot) {
  const int64_t device = busiest_device(snapshot);
  if (device >= 0) return SnapshotMeasure(snapshot, static_cast<size_t>(device)).run();
  MemoryFacts facts;
  facts.source = "allocator snapshot";
  int64_t reserved = 0, allocated = 0;
  for (const AllocatorSegment& segment : snapshot.segments) {
    reserved += segment.total_bytes;
    allocated += segment.allocated_bytes;
    for (const AllocatorBlock& block : segment.blocks) {
      if (block.state == AllocatorBlock::State::kInactive) {
        facts.largest_free_block = std::max(facts.largest_free_block, block.size_bytes);
      }
    }
  }
  facts.notes.push_back(format(
      "the snapshot has no history: only its own moment is known (%s allocated, %s reserved); "
      "call torch.cuda.memory._record_memory_history() before training",
      gib(allocated).c_str(),
      gib(reserved).c_str()));
  return facts;
}

}  // namespace vitrine
