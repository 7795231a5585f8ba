// Each step: its window on the host, and the device work that it launched.
#include <algorithm>
#include <array>

#include "analysis/kernel_classes.h"
#include "analysis/rank_parts.h"

namespace vitrine {
namespace {

struct StepWork {
  DeviceSets sets;
  std::array<RunningUnion, kPhases> phases;
  RunningUnion copies, recompute;
  int64_t begin = INT64_MAX, end = INT64_MIN;
};

std::string step_name(const std::string& name, int32_t step) {
  const bool numbered =
      std::any_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  return numbered || step < 0 ? name : name + " " + std::to_string(step);
}

void add_work(const DeviceSpan& span, KernelClass kind, StepWork& work, StepFacts& out) {
  work.begin = std::min(work.begin, span.begin), work.end = std::max(work.end, span.end);
  work.sets.append(span.use, {span.begin, span.end});
  if (span.use == DeviceUse::kCopy) return work.copies.add(span.begin, span.end);
  ++out.kernels;
  if (span.use == DeviceUse::kCommunication) {
    ++out.collectives;
    return;
  }
  work.phases[static_cast<size_t>(span.phase)].add(span.begin, span.end);
  if (span.recompute) work.recompute.add(span.begin, span.end);
  out.class_ns[static_cast<size_t>(kind)] += span.end - span.begin;
}

// Then work without a launch was launched before the recording began, in no step of it.
bool launches_are_known(const RankParts& view) {
  size_t known = 0;
  for (const DeviceSpan& span : view.device) known += span.launch >= 0;
  return 2 * known > view.device.size();
}

void finish(const StepWork& work, StepFacts& out) {
  out.copy_ns = work.copies.length(), out.recompute_ns = work.recompute.length();
  for (size_t phase = 0; phase < kPhases; ++phase)
    out.phase_ns[phase] = work.phases[phase].length();
  if (work.begin > work.end) return;
  out.device_begin_ns = work.begin, out.device_end_ns = work.end;
  out.device = breakdown_within(work.sets, {work.begin, work.end});
}

}  // namespace

void measure_steps(const RankParts& view, RankFacts& out) {
  constexpr size_t kWhats = 8;
  const Spans& spans = view.timeline.spans;
  for (size_t place = 0; place < view.steps.spans().size(); ++place) {
    const size_t i = view.steps.spans()[place];
    StepFacts step;
    step.step = spans.step[i];
    step.name = step_name(view.timeline.strings[spans.name[i]], step.step);
    step.start_ns = spans.start_ns[i];
    step.duration_ns = std::max<int64_t>(0, spans.duration_ns[i]);
    const Interval window{step.start_ns, step.start_ns + step.duration_ns};
    step.time = breakdown_within(view.sets, window);
    step.idle_by_cause = idle_by_cause(view.idle, window);
    step.idle_by_what = idle_by_what(view.timeline, view.idle, window, false, kWhats);
    const HostOfStep& host = view.host.steps[place];
    step.data_ns = host.data_ns, step.sync_ns = host.sync_ns;
    step.allocator_ns = host.allocator_ns, step.allocator_calls = host.allocator_calls;
    out.steps.push_back(std::move(step));
  }
  std::vector<StepWork> work(out.steps.size());
  std::vector<int8_t> class_of_name(view.timeline.strings.size(), -1);
  const bool launches_known = launches_are_known(view);
  for (const DeviceSpan& span : view.device) {
    const int32_t place = view.steps(spans.step[span.span]);
    if (place < 0 || (launches_known && span.launch < 0)) continue;
    int8_t& kind = class_of_name[spans.name[span.span]];
    if (kind < 0) kind = static_cast<int8_t>(kernel_traits(view.name(span)).kind);
    add_work(span,
             static_cast<KernelClass>(kind),
             work[static_cast<size_t>(place)],
             out.steps[static_cast<size_t>(place)]);
  }
  for (size_t place = 0; place < work.size(); ++place) finish(work[place], out.steps[place]);
}

}  // namespace vitrine
