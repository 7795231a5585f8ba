// Memory of timelines: our own ledger's samples, or a profiler's [memory] events.
#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "analysis/memory_curve.h"
#include "analysis/memory_facts.h"
#include "core/format.h"

namespace vitrine {

namespace {

int64_t capacity_of(const RankTimeline& timeline) {
  const auto found = timeline.info.find("device.memory_bytes");
  int64_t bytes = 0;
  if (found != timeline.info.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), bytes);
  }
  return bytes;
}

MemoryFacts of_ledger(const RankTimeline& timeline) {
  MemoryFacts facts;
  facts.source = "ledger";
  facts.category_known = true;
  std::vector<MemoryPoint> points;
  for (const MemorySample& sample : timeline.memory) {
    MemoryPoint point;
    point.time_ns = sample.time_ns;
    point.by_category = sample.bytes;
    for (const int64_t bytes : sample.bytes) point.allocated += bytes;
    if (points.empty() || point.allocated > facts.peak_allocated) {
      facts.peak_allocated = point.allocated;
      facts.peak_time_ns = point.time_ns;
      facts.at_peak = point;
    }
    points.push_back(point);
  }
  for (int c = 0; c < kMemoryCategories; ++c) {
    const std::string name = memory_category_name(static_cast<MemoryCategory>(c));
    const int64_t bytes = facts.at_peak.by_category[static_cast<size_t>(c)];
    if (bytes > 0) facts.holders.push_back({name, name, bytes});
  }
  std::stable_sort(facts.holders.begin(), facts.holders.end(), [](const auto& a, const auto& b) {
    return a.bytes > b.bytes;
  });
  facts.curve = thin(points, MemoryFacts::kMostPoints);
  facts.known = true;
  facts.notes.push_back("categories are the engine's own: exact; reserved memory is not recorded");
  return facts;
}

struct LiveBlock {
  int64_t time_ns, bytes;
};

// Of each block the shortest operator around its allocation, whichever thread it is of: memory
// events do not say their thread.
std::vector<MemoryHolder> by_operator(const RankTimeline& timeline, std::vector<LiveBlock> blocks) {
  std::sort(blocks.begin(), blocks.end(), [](const LiveBlock& a, const LiveBlock& b) {
    return a.time_ns < b.time_ns;
  });
  std::vector<int64_t> shortest(blocks.size(), INT64_MAX);
  std::vector<StringId> names(blocks.size(), kNoString);
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.kind[i] != SpanKind::kOperation) continue;
    const int64_t end = spans.start_ns[i] + spans.duration_ns[i];
    auto it = std::lower_bound(
        blocks.begin(), blocks.end(), spans.start_ns[i], [](const LiveBlock& block, int64_t time) {
          return block.time_ns < time;
        });
    for (; it != blocks.end() && it->time_ns <= end; ++it) {
      const auto at = static_cast<size_t>(it - blocks.begin());
      if (spans.duration_ns[i] >= shortest[at]) continue;
      shortest[at] = spans.duration_ns[i];
      names[at] = spans.name[i];
    }
  }
  std::map<std::string, int64_t> sums;
  for (size_t i = 0; i < blocks.size(); ++i) {
    sums[names[i] == kNoString ? "outside of operators" : timeline.strings[names[i]]] +=
        blocks[i].bytes;
  }
  std::vector<MemoryHolder> out;
  for (const auto& [name, bytes] : sums) out.push_back({name, "unknown", bytes});
  std::stable_sort(out.begin(), out.end(), [](const MemoryHolder& a, const MemoryHolder& b) {
    return a.bytes > b.bytes;
  });
  if (out.size() > MemoryFacts::kMostHolders) out.resize(MemoryFacts::kMostHolders);
  return out;
}

MemoryFacts of_events(const RankTimeline& timeline) {
  MemoryFacts facts;
  std::map<int32_t, int64_t> count;
  for (const AllocationEvent& event : timeline.allocations) {
    if (event.device_index >= 0) ++count[event.device_index];
  }
  if (count.empty()) return facts;
  const int32_t device =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  facts.source = "[memory] events";
  std::vector<AllocationEvent> events;
  for (const AllocationEvent& event : timeline.allocations) {
    if (event.device_index == device) events.push_back(event);
  }
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return a.time_ns < b.time_ns;
  });
  // Old versions give no totals: then the sum of what is seen, from nothing.
  const bool totals = std::all_of(
      events.begin(), events.end(), [](const AllocationEvent& e) { return e.allocated >= 0; });
  int64_t sum = 0, lowest = 0;
  for (const AllocationEvent& event : events) lowest = std::min(lowest, sum += event.bytes);
  sum = -lowest;
  std::vector<MemoryPoint> points;
  size_t peak = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    MemoryPoint point;
    point.time_ns = events[i].time_ns;
    sum += events[i].bytes;
    point.allocated = point.unknown = totals ? events[i].allocated : sum;
    point.reserved = std::max<int64_t>(events[i].reserved, 0);
    points.push_back(point);
    if (point.allocated > points[peak].allocated) peak = i;
  }
  set_reserved(facts, points);
  facts.at_peak = points[peak];
  facts.peak_allocated = points[peak].allocated;
  facts.peak_time_ns = points[peak].time_ns;
  std::unordered_map<uint64_t, LiveBlock> live;
  int64_t seen = 0;
  for (size_t i = 0; i <= peak; ++i) {
    if (events[i].bytes > 0)
      live[events[i].address] = {events[i].time_ns, events[i].bytes};
    else
      live.erase(events[i].address);
  }
  std::vector<LiveBlock> blocks;
  for (const auto& [address, block] : live) blocks.push_back(block), seen += block.bytes;
  facts.holders = by_operator(timeline, std::move(blocks));
  if (facts.peak_allocated > seen) {
    facts.holders.push_back(
        {"in use before the trace begins", "unknown", facts.peak_allocated - seen});
    std::stable_sort(facts.holders.begin(), facts.holders.end(), [](const auto& a, const auto& b) {
      return a.bytes > b.bytes;
    });
    if (facts.holders.size() > MemoryFacts::kMostHolders) facts.holders.pop_back();
    facts.starts_mid_run = true;
  }
  facts.curve = thin(points, MemoryFacts::kMostPoints);
  facts.known = true;
  facts.notes.push_back(
      "the profiler's memory events name no category; an allocator snapshot has frames to infer it "
      "from");
  if (!totals) facts.notes.push_back("the trace gives no totals: the curve begins at what is seen");
  if (count.size() > 1) {
    facts.notes.push_back(format("device %d is measured, which has most events", device));
  }
  return facts;
}

}  // namespace

MemoryFacts measure_memory(const RankTimeline& timeline) {
  MemoryFacts facts = timeline.memory.empty() ? of_events(timeline) : of_ledger(timeline);
  facts.capacity = capacity_of(timeline);
  if (!facts.known) {
    facts.notes.push_back(
        "no memory is recorded: profile with profile_memory=True, or write an allocator snapshot");
  }
  return facts;
}

}  // namespace vitrine
