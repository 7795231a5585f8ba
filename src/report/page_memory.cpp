// Memory by category over time, its peak and who holds it.
#include <algorithm>

#include "report/page_parts.h"

namespace vitrine {

namespace {

constexpr size_t kMostPointsOfPage = 60000;

// One rank. Layers: the categories, then what has none.
struct Curve {
  int32_t rank = -1;  // -1: a snapshot that belongs to no rank
  std::string source;
  std::vector<int64_t> times, reserved;
  std::vector<std::array<int64_t, kMemoryCategories + 1>> layers;
  int64_t peak = 0, peak_reserved = 0, capacity = 0;
  std::array<int64_t, kMemoryCategories + 1> at_peak{};
  std::vector<MemoryHolder> holders;
  std::string holders_when;
  int64_t fragmentation = -1, largest_free = -1, retries = 0, out_of_memory = 0;
  std::vector<std::string> notes;
};

std::array<int64_t, kMemoryCategories + 1> layers_of(const MemoryByCategory& bytes,
                                                     int64_t unknown) {
  std::array<int64_t, kMemoryCategories + 1> out{};
  std::copy(bytes.begin(), bytes.end(), out.begin());
  out.back() = unknown;
  return out;
}

// At most `most`, each the largest of its stretch, so that no peak is lost.
std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& points, size_t most) {
  if (points.size() <= most) return points;
  std::vector<MemoryPoint> out;
  for (size_t part = 0; part < most; ++part) {
    const auto place = [&](size_t i) {
      return points.begin() + static_cast<ptrdiff_t>(i * points.size() / most);
    };
    out.push_back(*std::max_element(place(part), place(part + 1), [](const auto& a, const auto& b) {
      return a.allocated < b.allocated;
    }));
  }
  return out;
}

// `shift` is added to its times.
Curve curve_of(int32_t rank, const MemoryFacts& facts, int64_t shift, size_t most) {
  Curve out;
  out.rank = rank, out.source = facts.source;
  for (const MemoryPoint& point : thinned(facts.curve, most)) {
    out.times.push_back(point.time_ns + shift);
    out.reserved.push_back(point.reserved);
    out.layers.push_back(layers_of(point.by_category, point.unknown));
  }
  out.peak = facts.peak_allocated, out.peak_reserved = facts.peak_reserved;
  out.capacity = facts.capacity;
  out.at_peak = layers_of(facts.at_peak.by_category, facts.at_peak.unknown);
  out.holders = facts.holders, out.holders_when = "at the peak";
  out.fragmentation = facts.fragmentation, out.largest_free = facts.largest_free_block;
  out.retries = facts.retries, out.out_of_memory = facts.out_of_memory;
  out.notes = facts.notes;
  if (facts.starts_mid_run) {
    out.notes.push_back(
        "The record was full and begins in the middle of the run: what was "
        "allocated before it is shown as one level.");
  }
  return out;
}

// The times of an allocator snapshot are of the wall clock: they begin at 0 where they lie outside
// what the page shows.
int64_t shift_of(int32_t rank, const MemoryFacts& facts, const PageClock& clock) {
  if (facts.curve.empty()) return 0;
  const int64_t begin = clock.at(rank, facts.curve.front().time_ns);
  const int64_t end = clock.at(rank, facts.curve.back().time_ns);
  if (begin > clock.end_ns() || end < 0) return -facts.curve.front().time_ns;
  return clock.at(rank, 0);
}

std::vector<Curve> curves(const ReportInput& input, const PageClock& clock) {
  std::vector<Curve> out;
  if (input.job != nullptr) {
    const size_t most =
        kMostPointsOfPage / (1 + input.job->ranks.size() + input.job->loose_memory.size());
    for (const RankFacts& rank : input.job->ranks) {
      if (!rank.memory.known) continue;
      out.push_back(
          curve_of(rank.rank, rank.memory, shift_of(rank.rank, rank.memory, clock), most));
    }
    for (const MemoryFacts& loose : input.job->loose_memory) {
      if (loose.known) out.push_back(curve_of(-1, loose, shift_of(-1, loose, clock), most));
    }
  }
  // The ledger saw the whole run, the samples a window of it.
  for (const RankMemory& ledger : input.memory) {
    auto it = std::find_if(
        out.begin(), out.end(), [&](const Curve& curve) { return curve.rank == ledger.rank; });
    if (it == out.end()) {
      it = out.insert(out.end(), Curve());
      it->rank = ledger.rank, it->source = "ledger";
    }
    it->peak = ledger.peak_bytes;
    it->at_peak = layers_of(ledger.at_peak, 0);
    it->holders.clear();
    it->holders_when = "at the end of the run";
    for (const auto& holder : ledger.holders) {
      it->holders.push_back({holder.name, memory_category_name(holder.category), holder.bytes});
    }
  }
  for (Curve& curve : out) {
    if (input.memory_capacity_bytes > 0) curve.capacity = input.memory_capacity_bytes;
  }
  return out;
}

Json curve_json(const Curve& curve) {
  Json holders = Json::array();
  for (const auto& holder : curve.holders) {
    holders.push_back(
        {{"category", holder.category}, {"holder", holder.what}, {"bytes", holder.bytes}});
  }
  const bool reserves = std::any_of(
      curve.reserved.begin(), curve.reserved.end(), [](int64_t bytes) { return bytes > 0; });
  return {{"rank", curve.rank},
          {"source", curve.source},
          {"times", curve.times},
          {"bytes", curve.layers},
          {"reserved", reserves ? Json(curve.reserved) : Json::array()},
          {"peak", curve.peak},
          {"peak_reserved", curve.peak_reserved},
          {"capacity", curve.capacity},
          {"at_peak", curve.at_peak},
          {"holders", std::move(holders)},
          {"holders_when", curve.holders_when},
          {"fragmentation", curve.fragmentation},
          {"largest_free", curve.largest_free},
          {"retries", curve.retries},
          {"out_of_memory", curve.out_of_memory},
          {"notes", curve.notes}};
}

}  // namespace

RankMemory RankMemory::of(int32_t rank, const MemoryLedger& ledger, size_t holders) {
  RankMemory out;
  out.rank = rank;
  out.peak_bytes = ledger.peak();
  out.at_peak = ledger.at_peak();
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    for (const auto& [name, bytes] : ledger.holders(category)) {
      out.holders.push_back({category, name, bytes});
    }
  }
  std::stable_sort(out.holders.begin(), out.holders.end(), [](const Holder& a, const Holder& b) {
    return a.bytes > b.bytes;
  });
  if (out.holders.size() > holders) out.holders.resize(holders);
  return out;
}

Json memory_json(const ReportInput& input, const PageClock& clock) {
  Json categories = Json::array();
  for (int c = 0; c < kMemoryCategories; ++c) {
    categories.push_back(memory_category_name(static_cast<MemoryCategory>(c)));
  }
  categories.push_back("not known");
  Json ranks = Json::array();
  for (const Curve& curve : curves(input, clock)) ranks.push_back(curve_json(curve));
  return {{"categories", std::move(categories)}, {"ranks", std::move(ranks)}};
}

MemoryPeak memory_peak(const ReportInput& input) {
  MemoryPeak out;
  for (const Curve& curve : curves(input, PageClock(input))) {
    if (curve.peak > out.bytes) out = {curve.peak, curve.capacity, curve.rank};
  }
  return out;
}

}  // namespace vitrine
