// Correlation to launch by a hash table; phases from launches, own kinds or kernels' names.
#include "analysis/device_walk.h"

#include <algorithm>
#include <map>

#include "analysis/flat_map.h"
#include "analysis/kernel_classes.h"

namespace vitrine {
namespace {

FlatMap launches_by_correlation(const HostWalk& host) {
  FlatMap out(host.launches.size());
  for (size_t i = 0; i < host.launches.size(); ++i) {
    const Launch& launch = host.launches[i];
    if (launch.correlation == 0) continue;
    out.insert(static_cast<uint64_t>(launch.correlation), static_cast<uint32_t>(i));
  }
  return out;
}

Phase phase_of_kind(SpanKind kind) {
  switch (kind) {
    case SpanKind::kForward:
      return Phase::kForward;
    case SpanKind::kRecompute:
    case SpanKind::kBackward:
      return Phase::kBackward;
    case SpanKind::kOptimizer:
      return Phase::kOptimizer;
    default:
      return Phase::kOther;
  }
}

Phase phase_of_kernel(const std::string& name) {
  const KernelTraits traits = kernel_traits(name);
  if (traits.kind == KernelClass::kOptimizer) return Phase::kOptimizer;
  return traits.backward ? Phase::kBackward : Phase::kOther;
}

// Of our own runs: a gather belongs to the block's first compute after its end, which waits for it;
// reductions are of gradients. Gathers outside micro-batches hand out updated parameters (ZeRO-1
// and -2).
void phases_of_own_collectives(const Spans& spans, std::vector<DeviceSpan>& device) {
  std::map<StringId, std::vector<const DeviceSpan*>> compute;  // by block, in order of begin
  for (const DeviceSpan& span : device) {
    if (span.use == DeviceUse::kCompute) compute[spans.block[span.span]].push_back(&span);
  }
  for (DeviceSpan& span : device) {
    const SpanKind kind = spans.kind[span.span];
    if (span.phase != Phase::kOther || spans.block[span.span] == kNoString) continue;
    if (kind == SpanKind::kReduce) span.phase = Phase::kBackward;
    if (kind != SpanKind::kGather) continue;
    if (spans.micro_batch[span.span] < 0) {
      span.phase = Phase::kOptimizer;
      continue;
    }
    const auto& of_block = compute[spans.block[span.span]];
    const auto next = std::partition_point(
        of_block.begin(), of_block.end(), [&](const auto* c) { return c->begin < span.end; });
    if (next != of_block.end()) span.phase = (*next)->phase;
  }
}

}  // namespace

std::vector<DeviceSpan> walk_device(const RankTimeline& timeline,
                                    const SpanOrder& order,
                                    HostWalk& host) {
  const Spans& spans = timeline.spans;
  const FlatMap launches = launches_by_correlation(host);
  std::vector<int8_t> phase_by_name(timeline.strings.size(), -1);
  const auto on_device = [&](int32_t lane) {
    return timeline.lanes[static_cast<size_t>(lane)].device;
  };
  std::vector<DeviceSpan> out;
  out.reserve(static_cast<size_t>(std::count_if(spans.lane.begin(), spans.lane.end(), on_device)));
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t i = order[k];
    if (!on_device(spans.lane[i])) continue;
    const DeviceUse use = device_use(spans.kind[i]);
    if (use == DeviceUse::kNone) continue;
    DeviceSpan device;
    device.begin = spans.start_ns[i];
    device.end = device.begin + std::max<int64_t>(0, spans.duration_ns[i]);
    device.span = static_cast<uint32_t>(i), device.use = use;
    device.phase = phase_of_kind(spans.kind[i]);
    device.recompute = spans.kind[i] == SpanKind::kRecompute;
    const uint32_t found = spans.correlation[i] == 0
                               ? FlatMap::kAbsent
                               : launches.find(static_cast<uint64_t>(spans.correlation[i]));
    if (found != FlatMap::kAbsent) {
      Launch& launch = host.launches[found];
      device.launch = static_cast<int32_t>(found);
      if (device.phase == Phase::kOther) device.phase = launch.phase;
      device.recompute |= launch.recompute;
      ++launch.device_spans;
      if (launch.operator_row >= 0) {
        host.operator_table[launch.operator_row].device_ns += device.end - device.begin;
      }
      if (launch.copy_state >= 0 && launch.end >= device.end) {
        host.states[static_cast<size_t>(launch.copy_state)].counts = true;
      }
    }
    if (device.phase == Phase::kOther && spans.kind[i] == SpanKind::kKernel) {
      int8_t& phase = phase_by_name[spans.name[i]];
      if (phase < 0) phase = static_cast<int8_t>(phase_of_kernel(timeline.strings[spans.name[i]]));
      device.phase = static_cast<Phase>(phase);
    }
    out.push_back(device);
  }
  if (host.launches.empty()) phases_of_own_collectives(spans, out);
  return out;
}

}  // namespace vitrine
