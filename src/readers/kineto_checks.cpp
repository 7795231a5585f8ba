// Counting of what is odd, and a sentence for each kind.
#include "readers/kineto_checks.h"

#include <algorithm>

#include "core/format.h"

namespace vitrine {
namespace {

// A stream runs one kernel after another: what reaches so far into the next one's time never ran
// so long (ROCm's profiler gives such durations).
constexpr int64_t kImpossibleOverlapNs = 100'000'000;

long long wide(int64_t value) { return static_cast<long long>(value); }

}  // namespace

void check_device_times(KinetoDraft& draft) {
  Spans& spans = draft.timeline.spans;
  const auto& lanes = draft.timeline.lanes;
  std::vector<uint32_t> longest(lanes.size(), ~uint32_t{0});  // by lane: ends last so far
  int64_t overlapping = 0, farthest = 0, clipped = 0, most_clipped = 0, no_time = 0;
  for (uint32_t i = 0; i < spans.size(); ++i) {
    const auto lane = static_cast<size_t>(spans.lane[i]);
    if (!lanes[lane].device) continue;
    if (spans.kind[i] != SpanKind::kKernel && spans.kind[i] != SpanKind::kCopy &&
        !is_communication(spans.kind[i])) {
      continue;
    }
    no_time += spans.duration_ns[i] == 0;
    uint32_t& before = longest[lane];
    if (before == ~uint32_t{0}) {
      before = i;
      continue;
    }
    const int64_t end = spans.start_ns[before] + spans.duration_ns[before];
    const int64_t overlap = end - spans.start_ns[i];
    if (overlap > kImpossibleOverlapNs && draft.hip) {
      ++clipped;
      most_clipped = std::max(most_clipped, overlap);
      spans.duration_ns[before] = spans.start_ns[i] - spans.start_ns[before];
      before = i;
      continue;
    }
    if (overlap > 0) {
      ++overlapping;
      farthest = std::max(farthest, overlap);
    }
    if (spans.start_ns[i] + spans.duration_ns[i] >= end) before = i;
  }
  auto& warnings = draft.timeline.warnings;
  if (overlapping > 0) {
    warnings.push_back(
        format("%s before the one before on their stream has ended, by up to "
               "%lld ns: both are kept, and time is counted once",
               (overlapping == 1 ? std::string("1 kernel begins")
                                 : std::to_string(overlapping) + " kernels begin")
                   .c_str(),
               wide(farthest)));
  }
  if (clipped > 0) {
    warnings.push_back(
        format("%lld kernel%s into the next one's time on %s stream by up to %lld "
               "ns, which ROCm's profiler is known for: cut at the next one's start",
               wide(clipped),
               clipped == 1 ? " seems to last" : "s seem to last",
               clipped == 1 ? "its" : "their",
               wide(most_clipped)));
  }
  if (no_time > 0) {
    warnings.push_back(
        no_time == 1 ? std::string("1 kernel or copy lasts 0 ns: it is kept")
                     : format("%lld kernels or copies last 0 ns: they are kept", wide(no_time)));
  }
}

void warn_of_damage(KinetoDraft& draft) {
  const auto warn = [&](const Tally& tally, const char* what) {
    if (tally.count == 0) return;
    draft.timeline.warnings.push_back(format("%lld %s (the first at byte %llu)",
                                             wide(tally.count),
                                             what,
                                             static_cast<unsigned long long>(tally.first)));
  };
  const KinetoDamage& damage = draft.damage;
  warn(damage.lost,
       "places are not JSON, or are nested more than 4096 deep: what stands there up to the next "
       "event is left out");
  warn(damage.repaired, "events have unescaped quotes or backslashes in their texts: mended");
  warn(damage.controls, "texts have raw newlines or other control characters: kept");
  warn(damage.escapes, "texts have unknown escapes: kept as they stand");
  warn(damage.utf8, "texts are not UTF-8: the bad bytes are shown as U+FFFD");
  warn(damage.no_events,
       "entries are no events (no phase, name or time, or times that can't be): left out");
  warn(damage.negative, "durations are negative: taken as 0");
  warn(damage.never_run,
       "device events have time 0 and duration 0 (the profiler lost their times): left out");
  warn(damage.odd_groups, "collectives have a group size that can't be: taken as not known");
}

}  // namespace vitrine
