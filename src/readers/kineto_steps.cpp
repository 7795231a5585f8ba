// Step marks in order of their beginning, each with a number of its own.
#include "readers/kineto_steps.h"

#include <algorithm>
#include <unordered_set>

#include "core/format.h"

namespace vitrine {
namespace {

struct Step {
  int64_t start_ns, end_ns;
  int32_t step;
};

// Steps follow each other, but for what rounding and clocks do at their ends.
bool lies_over(const Spans& spans, size_t span, size_t before) {
  const int64_t start = spans.start_ns[span], length = spans.duration_ns[span];
  const int64_t before_length = spans.duration_ns[before];
  const int64_t before_end = spans.start_ns[before] + before_length;
  if (start >= before_end) return false;
  const int64_t overlap = std::min(start + length, before_end) - start;
  return overlap >= (std::min(length, before_length) + 1) / 2;
}

// The lowest number above all others; where there is none left, any that is free.
class Numbers {
 public:
  void take(int32_t number) {
    taken_.insert(number);
    next_ = std::max(next_, int64_t{number} + 1);
  }
  bool taken(int32_t number) const { return taken_.contains(number); }
  int32_t fresh() {
    if (next_ > INT32_MAX) {
      for (next_ = 0; taken_.contains(static_cast<int32_t>(next_));) ++next_;
    }
    const auto number = static_cast<int32_t>(next_);
    take(number);
    return number;
  }

 private:
  std::unordered_set<int32_t> taken_;
  int64_t next_ = 0;
};

}  // namespace

void tell_steps_apart(RankTimeline& timeline) {
  Spans& spans = timeline.spans;
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> steps, inside, again;
  Numbers numbers;
  size_t before = kNone;  // the step that ends last so far
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.kind[i] != SpanKind::kStep) continue;
    if (before != kNone && lies_over(spans, i, before)) {
      inside.push_back(i);
      spans.kind[i] = SpanKind::kRegion;
      spans.step[i] = -1;
      continue;
    }
    steps.push_back(i);
    if (spans.step[i] >= 0) numbers.take(spans.step[i]);
    const auto end = [&](size_t span) { return spans.start_ns[span] + spans.duration_ns[span]; };
    if (before == kNone || end(i) >= end(before)) before = i;
  }
  std::unordered_set<int32_t> seen;
  for (const size_t i : steps) {
    if (spans.step[i] >= 0 && seen.insert(spans.step[i]).second) continue;
    again.push_back(i);
    spans.step[i] = numbers.fresh();
  }
  const auto warn = [&](const std::vector<size_t>& which, const char* what) {
    if (which.empty()) return;
    const size_t first = which.front();
    timeline.warnings.push_back(format("%zu step marks %s (the first: \"%.80s\" at %lld ns)",
                                       which.size(),
                                       what,
                                       timeline.strings[spans.name[first]].c_str(),
                                       static_cast<long long>(spans.start_ns[first])));
  };
  warn(again,
       "have a number that an earlier step has, or none that can be read (several recordings, or "
       "several threads that count for themselves): they are steps of their own, numbered on from "
       "the highest, and keep their names");
  warn(inside, "lie inside another step or mostly over it: they are read as named regions");
}

void assign_steps(RankTimeline& timeline, const KinetoLaunches& launches) {
  Spans& spans = timeline.spans;
  std::vector<Step> steps;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.kind[i] != SpanKind::kStep) continue;
    steps.push_back({spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i], spans.step[i]});
  }
  if (steps.empty()) return;
  auto after = steps.begin();  // of moments in order; launches of device work are nearly so
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.step[i] >= 0) continue;
    const bool device = timeline.lanes[static_cast<size_t>(spans.lane[i])].device;
    const uint32_t launch = device ? launches.launch_of(i) : KinetoLaunches::kNone;
    const int64_t moment = spans.start_ns[launch == KinetoLaunches::kNone ? i : launch];
    while (after != steps.end() && after->start_ns <= moment) ++after;
    while (after != steps.begin() && std::prev(after)->start_ns > moment) --after;
    if (after == steps.begin()) continue;
    if (const Step& step = *std::prev(after); moment < step.end_ns) spans.step[i] = step.step;
  }
}

}  // namespace vitrine
