// The inverse of what timeline/chrome_writer.cpp adds to Kineto's dialect.
#include "readers/kineto_own.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "core/error.h"
#include "core/memory_ledger.h"

namespace vitrine {
namespace {

void strip(std::string_view& name, std::string_view before, std::string_view after) {
  if (name.size() >= before.size() + after.size() && name.starts_with(before) &&
      name.ends_with(after)) {
    name = name.substr(before.size(), name.size() - before.size() - after.size());
  }
}

// The writer's names differ from the spans' where tools look for words of their own.
// `seemed` is what they look like to those tools.
std::string own_name(std::string_view name, SpanKind kind, SpanKind seemed) {
  if (kind == SpanKind::kStep && seemed == SpanKind::kStep) return "step";
  if (kind == SpanKind::kData && seemed == SpanKind::kData) strip(name, "DataLoader: ", "");
  if (kind == SpanKind::kCopy && seemed == SpanKind::kCopy) strip(name, "Memcpy (", ")");
  if (kind == SpanKind::kDisk && seemed == SpanKind::kCopy) strip(name, "Memcpy disk (", ")");
  return std::string(name);
}

template <typename T>
void keep(std::vector<T>& column, const std::vector<uint32_t>& kept) {
  for (size_t i = 0; i < kept.size(); ++i) column[i] = column[kept[i]];
  column.resize(kept.size());
}

}  // namespace

void take_own_spans(KinetoDraft& draft) {
  RankTimeline& timeline = draft.timeline;
  Spans& spans = timeline.spans;
  std::vector<uint32_t> kept;
  for (const KinetoDraft::Own& own : draft.own_spans) {
    const size_t i = own.span;
    const SpanKind seemed = spans.kind[i];
    SpanKind kind = SpanKind::kHost;
    try {
      kind = span_kind_from_name(timeline.strings[own.kind]);
    } catch (const ConfigError&) {  // a kind of a newer version
    }
    spans.kind[i] = kind;
    spans.name[i] =
        own.label != kNoString
            ? own.label
            : timeline.strings.intern(own_name(timeline.strings[spans.name[i]], kind, seemed));
    spans.block[i] = own.block;
    spans.step[i] = own.step;
    spans.micro_batch[i] = own.micro_batch;
    kept.push_back(own.span);
  }
  keep(spans.start_ns, kept), keep(spans.duration_ns, kept), keep(spans.name, kept);
  keep(spans.kind, kept), keep(spans.lane, kept), keep(spans.step, kept);
  keep(spans.micro_batch, kept), keep(spans.block, kept), keep(spans.collective, kept);
  keep(spans.correlation, kept), keep(spans.bytes, kept), keep(spans.shapes, kept);
}

void drop_made_up_correlations(RankTimeline& timeline) {
  std::unordered_set<int64_t> calls;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    if (!timeline.lanes[static_cast<size_t>(timeline.spans.lane[i])].device)
      calls.insert(timeline.spans.correlation[i]);
  }
  for (int64_t& correlation : timeline.spans.correlation) {
    if (!calls.contains(correlation)) correlation = 0;
  }
}

void take_counters(KinetoDraft& draft) {
  RankTimeline& timeline = draft.timeline;
  // Our memory is said again, by category, by a counter.
  if (draft.own) timeline.allocations.clear();
  const KinetoDraft::Series* last = nullptr;
  for (const KinetoDraft::Series& sample : draft.counters) {
    const std::string name = timeline.strings[sample.name],
                      series = timeline.strings[sample.series];
    if (draft.own && name == "memory by category") {
      const bool same = last != nullptr && last->name == sample.name &&
                        last->time_ns == sample.time_ns && last + 1 == &sample;
      if (!same) timeline.memory.push_back({sample.time_ns, {}});
      for (int c = 0; c < kMemoryCategories; ++c) {
        if (series == memory_category_name(static_cast<MemoryCategory>(c))) {
          // Exact up to 2^53; what is beyond 2^62 is damage, and fits no integer.
          const double value = std::clamp(sample.value, -0x1p62, 0x1p62);
          timeline.memory.back().bytes[static_cast<size_t>(c)] =
              draft.amounts.bounded(static_cast<int64_t>(value), -Amounts::kMost);
        }
      }
      last = &sample;
      continue;
    }
    timeline.counters.push_back(
        {sample.time_ns,
         series == "value" ? sample.name : timeline.strings.intern(name + ": " + series),
         sample.value});
  }
  std::vector<KinetoDraft::Series>().swap(draft.counters);
}

}  // namespace vitrine
