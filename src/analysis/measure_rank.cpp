// The walks over a timeline, once each, and the parts that read them.
#include <algorithm>
#include <future>
#include <limits>

#include "analysis/critical_path.h"
#include "analysis/rank_parts.h"
#include "core/format.h"

namespace vitrine {
namespace {

DeviceSets sets_of(const std::vector<DeviceSpan>& device) {
  DeviceSets out;
  for (const DeviceSpan& span : device) out.append(span.use, {span.begin, span.end});
  return out;
}

Interval window_of(const std::vector<DeviceSpan>& device) {
  Interval out{device.front().begin, device.front().end};
  for (const DeviceSpan& span : device) out.end = std::max(out.end, span.end);
  return out;
}

// The window and all steps: idleness before the first kernel of a step has a cause too.
Interval range_of(const RankTimeline& timeline, const StepIndex& steps, Interval window) {
  for (const size_t i : steps.spans()) {
    const int64_t begin = timeline.spans.start_ns[i];
    window.begin = std::min(window.begin, begin);
    window.end = std::max(window.end, begin + timeline.spans.duration_ns[i]);
  }
  return window;
}

void take_header(const RankTimeline& timeline, RankFacts& out) {
  out.rank = timeline.rank, out.world_size = timeline.world_size;
  out.source = timeline.source, out.info = timeline.info;
  out.wall_anchor_ns = timeline.wall_anchor_ns;
  out.warnings = timeline.warnings;
  const auto known = [&](const char* key) {
    const auto it = timeline.info.find(key);
    return it == timeline.info.end() ? std::string() : it->second;
  };
  out.device = known("device"), out.host = known("host"), out.origin = known("origin");
  if (out.origin.empty()) {
    const bool own =
        std::any_of(timeline.spans.kind.begin(), timeline.spans.kind.end(), [](SpanKind kind) {
          return kind == SpanKind::kForward || kind == SpanKind::kBackward;
        });
    out.origin = own ? "Vitrine" : "PyTorch profiler";
  }
}

void measure_counters(const RankTimeline& timeline, RankFacts& out) {
  std::map<StringId, CounterFacts> found;
  for (const CounterSample& sample : timeline.counters) {
    CounterFacts& facts = found[sample.name];
    if (facts.samples++ == 0) {
      facts.name = timeline.strings[sample.name];
      facts.min = facts.max = sample.value;
    }
    facts.min = std::min(facts.min, sample.value), facts.max = std::max(facts.max, sample.value);
    facts.mean += (sample.value - facts.mean) / static_cast<double>(facts.samples);
  }
  for (auto& [name, facts] : found) out.counters.push_back(std::move(facts));
}

void explain_recompute(const RankParts& view, RankFacts& out) {
  if (out.recompute_ns == 0) return;
  if (view.host.recomputed.empty()) {
    out.recompute_evidence = "spans of recomputation";
    return;
  }
  std::string names;
  for (size_t i = 0; i < view.host.recomputed.size() && i < 4; ++i) {
    names += (i == 0 ? "" : ", ") + view.timeline.strings[view.host.recomputed[i]];
  }
  out.recompute_evidence = "forward operators launched inside backward: " + names;
}

void explain_phases(const RankParts& view, RankFacts& out) {
  const HostWalk& host = view.host;
  if (out.origin == "Vitrine") {
    out.notes.push_back("phases: as the engine says");
  } else if (host.launches.empty()) {
    out.notes.push_back("phases: by kernels' names alone, no launches are recorded");
  } else if (!host.backward_seen) {
    out.notes.push_back("phases: no backward was seen; what operators launch counts as forward");
  } else {
    out.notes.push_back(
        std::string("phases: backward by autograd's operators and annotations, optimizer by ") +
        (host.optimizer_seen ? "its annotations" : "names of operators and kernels") +
        (host.forward_region_seen ? ", forward by annotations"
                                  : ", forward: other operators that launch"));
  }
  size_t unlaunched = 0;
  for (const DeviceSpan& span : view.device) unlaunched += span.launch < 0;
  if (unlaunched > 0 && !host.launches.empty()) {
    out.notes.push_back(std::to_string(unlaunched) + " of " + std::to_string(view.device.size()) +
                        " pieces of device work have no recorded launch: they belong to no step "
                        "and no phase, unless a kernel's name says its phase");
  }
}

// Nothing ran on a device: operators of the host are the work.
RankFacts measure_host_only(const RankTimeline& timeline,
                            const StepIndex& steps,
                            const HostWalk& host,
                            RankFacts out) {
  const auto& operators = host.operators.intervals();
  if (operators.empty()) {
    if (timeline.spans.size() > 0) out.notes.push_back("no device work and no operators recorded");
    return out;
  }
  out.notes.push_back("no device work recorded: operators of the host count as compute");
  DeviceSets sets;
  sets.compute = host.operators;
  out.begin_ns = operators.front().begin, out.end_ns = operators.back().end;
  out.total = breakdown_within(sets, {out.begin_ns, out.end_ns});
  std::vector<DeviceSpan> none, work;
  for (const Interval& i : operators) {
    work.push_back({i.begin, i.end, 0, -1, DeviceUse::kCompute, Phase::kOther, false});
  }
  const Interval window{out.begin_ns, out.end_ns};
  const std::vector<IdlePiece> idle = idle_pieces(host, work, range_of(timeline, steps, window));
  measure_steps({timeline, steps, host, none, sets, idle}, out);
  out.idle_by_cause = idle_by_cause(idle, window);
  return out;
}

RankFacts measure_all_but_memory(const RankTimeline& timeline) {
  RankFacts out;
  out.critical_path.unknown = "no work of a device is recorded";
  take_header(timeline, out);
  measure_counters(timeline, out);
  const SpanOrder order(timeline.spans);
  const StepIndex steps(timeline.spans, order);
  HostWalk host = walk_host(timeline, order, steps);
  const std::vector<DeviceSpan> device = walk_device(timeline, order, host);
  out.profiler_ns = host.profiler.length();
  out.operators = host.operator_table.rows(timeline);
  out.flops = host.operator_table.total_flops();
  if (device.empty()) return measure_host_only(timeline, steps, host, std::move(out));

  out.device_work = true;
  const DeviceSets sets = sets_of(device);
  const Interval window = window_of(device);
  out.begin_ns = window.begin, out.end_ns = window.end;
  out.total = breakdown_within(sets, window);
  const std::vector<IdlePiece> idle = idle_pieces(host, device, range_of(timeline, steps, window));
  const RankParts view{timeline, steps, host, device, sets, idle};
  constexpr size_t kWhats = 20;
  out.idle_by_cause = idle_by_cause(idle, window);
  out.idle_by_what = idle_by_what(timeline, idle, window, true, kWhats);
  out.gaps = longest_gaps(timeline, host, device, idle, window);
  measure_kernels(view, out);
  measure_launches(view, out);
  measure_collectives(view, out);
  measure_steps(view, out);
  outline_work(view, out);
  explain_recompute(view, out);
  explain_phases(view, out);
  out.critical_path = measure_path(view, out.collectives);
  return out;
}

}  // namespace

RankFacts measure_rank(const RankTimeline& timeline) {
  // Takes as long as all the rest where every allocation is recorded.
  std::future<MemoryFacts> memory =
      std::async(std::launch::async, [&timeline] { return measure_memory(timeline); });
  RankFacts out = measure_all_but_memory(timeline);
  out.memory = memory.get();
  return out;
}

}  // namespace vitrine
