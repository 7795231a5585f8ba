// How far the host runs ahead of the device, and how short kernels are.
#include <algorithm>

#include "analysis/rank_parts.h"
#include "analysis/statistics.h"

namespace vitrine {
namespace {

constexpr int64_t kShortNs = 10000;

// At each launch: kernels launched before it and not begun, and whether the device is idle.
void measure_queue(const RankParts& view, LaunchFacts& out) {
  std::vector<int64_t> begun;  // in order: device spans are
  for (const DeviceSpan& span : view.device) {
    if (const Launch* launch = view.launch(span))
      begun.push_back(std::max(span.begin, launch->begin));
  }
  std::sort(begun.begin(), begun.end());
  int64_t seen = 0, starved = 0, kernels = 0, launched = 0;
  double sum = 0;
  size_t next = 0, at = 0;
  int64_t busy_until = INT64_MIN;
  for (const Launch& launch : view.host.launches) {
    if (launch.device_spans == 0) continue;
    while (next < begun.size() && begun[next] <= launch.begin) ++next;
    for (; at < view.device.size() && view.device[at].begin <= launch.begin; ++at) {
      busy_until = std::max(busy_until, view.device[at].end);
    }
    const int64_t queue = std::max<int64_t>(0, launched - static_cast<int64_t>(next));
    sum += static_cast<double>(queue);
    out.queue_max = std::max(out.queue_max, queue);
    ++seen;
    kernels += launch.device_spans;
    if (queue == 0 && busy_until <= launch.begin) ++starved;
    launched += launch.device_spans;
  }
  if (seen == 0) return;
  out.queue_mean = sum / static_cast<double>(seen);
  out.starved_share = static_cast<double>(starved) / static_cast<double>(kernels);
}

}  // namespace

void measure_launches(const RankParts& view, RankFacts& facts) {
  LaunchFacts& out = facts.launch;
  std::vector<int64_t> delays, durations, calls;
  for (const DeviceSpan& span : view.device) {
    if (!view.is_kernel(span)) continue;
    if (span.use == DeviceUse::kCompute) {
      durations.push_back(span.end - span.begin);
      out.short_kernels += span.end - span.begin < kShortNs;
    }
    const Launch* launch = view.launch(span);
    if (launch == nullptr) continue;
    ++out.kernels;
    out.before_launch += span.begin < launch->begin;
    if (launch->graph) {
      ++out.graph_kernels;
    } else {
      delays.push_back(std::max<int64_t>(0, span.begin - launch->end));
    }
  }
  for (const Launch& launch : view.host.launches) {
    if (launch.device_spans == 0) continue;
    ++out.launches;
    out.graph_launches += launch.graph;
    calls.push_back(launch.end - launch.begin);
  }
  out.delay_median_ns = median(delays), out.delay_p90_ns = quantile(std::move(delays), 0.9);
  out.kernel_median_ns = median(std::move(durations));
  out.launch_median_ns = median(std::move(calls));
  measure_queue(view, out);
}

}  // namespace vitrine
