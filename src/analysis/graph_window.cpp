// Selection of a window's work, its usual delays, and the host's points.
#include "analysis/graph_window.h"

#include <algorithm>

#include "analysis/statistics.h"

namespace vitrine {
namespace {

// A launch in an unloaded queue, where none was seen in the window.
constexpr int64_t kUsualLatencyNs = 5'000;

class WindowReader {
 public:
  WindowReader(const RankParts& parts, Interval host) : parts_(parts) { out_.host = host; }

  GraphWindow run() {
    select_device();
    learn_delays();
    read_sync_rows();
    collect_points();
    return std::move(out_);
  }

 private:
  // What was launched in the window; work before it only where it is still running or queued.
  void select_device() {
    int64_t known = 0, all = 0, first = INT64_MAX;
    for (uint32_t i = 0; i < parts_.device.size(); ++i) {
      const Launch* from = parts_.launch_at(i);
      if (from != nullptr ? from->begin >= out_.host.end : parts_.device[i].begin >= out_.host.end)
        continue;
      if (parts_.device[i].end < out_.host.begin) continue;
      out_.device.push_back(i);
      ++all, known += from != nullptr;
      if (from != nullptr && from->begin >= out_.host.begin)
        first = std::min(first, parts_.device[i].begin);
    }
    out_.launches_known = 2 * known > all;
    // Work without a launch was launched before the recording where launched work follows it.
    out_.first_launched_ns = out_.launches_known ? first : out_.host.begin;
  }
  // Medians of the window: launches to an idle stream, and from kernel to kernel of those that were
  // launched well before.
  void learn_delays() {
    std::vector<int64_t> launched, queued, busy_until(parts_.timeline.lanes.size(), INT64_MIN);
    for (const uint32_t i : out_.device) {
      int64_t& until = busy_until[parts_.lane_at(i)];
      const Launch* from = parts_.launch_at(i);
      if (from != nullptr && from->begin <= parts_.device[i].begin) {
        if (until <= from->begin && parts_.device[i].begin - from->begin <= kClockNs) {
          launched.push_back(parts_.device[i].begin - from->begin);
        } else if (from->end + kClockNs <= until && until <= parts_.device[i].begin &&
                   parts_.device[i].begin - until <= kHandOverNs) {
          queued.push_back(parts_.device[i].begin - until);
        }
      }
      until = std::max(until, parts_.device[i].end);
    }
    out_.latency_ns = launched.empty() ? kUsualLatencyNs : median(std::move(launched));
    out_.hand_over_ns = median(std::move(queued));
  }

  // Rows of synchronisation on the device say which stream waits, and which is waited for.
  void read_sync_rows() {
    const Spans& spans = parts_.timeline.spans;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (spans.kind[i] != SpanKind::kSync || spans.correlation[i] == 0) continue;
      if (!parts_.timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
      out_.stream_of_call[spans.correlation[i]] = spans.lane[i];
    }
  }

  bool lane_counts(size_t index) const {
    return static_cast<int32_t>(index) == parts_.host.main_lane || launching_[index];
  }

  void collect_points() {
    const HostWalk& host = parts_.host;
    const auto after = [](const auto& list, int64_t at) {
      return std::partition_point(
          list.begin(), list.end(), [at](const auto& one) { return one.begin < at; });
    };
    launching_.assign(parts_.timeline.lanes.size(), false);
    const auto first = after(host.launches, out_.host.begin);
    const auto last = after(host.launches, out_.host.end);
    out_.first_launch = first - host.launches.begin();
    out_.launches = static_cast<size_t>(last - first);
    for (auto it = first; it != last; ++it) {
      launching_[static_cast<size_t>(it->lane)] = true;
      if (it->device_spans == 0) continue;
      out_.points.push_back(
          {it->begin, PointKind::kLaunch, static_cast<int32_t>(it - host.launches.begin())});
    }
    for (size_t index = 0; index < host.segments.size(); ++index) {
      if (lane_counts(index)) collect_segments(index);
    }
    const auto& waits = host.stream_waits;
    for (auto it = after(waits, out_.host.begin); it != waits.end() && it->begin < out_.host.end;
         ++it) {
      out_.points.push_back(
          {it->begin, PointKind::kStreamWait, static_cast<int32_t>(it - waits.begin())});
      out_.stream_waits_seen = true;
    }
    std::stable_sort(
        out_.points.begin(), out_.points.end(), [](const HostPoint& a, const HostPoint& b) {
          return a.at != b.at ? a.at < b.at : a.kind < b.kind;
        });
  }

  void collect_segments(size_t index) {
    const auto& segments = parts_.host.segments[index];
    auto it = std::partition_point(segments.begin(), segments.end(), [&](const HostSegment& s) {
      return s.end <= out_.host.begin;
    });
    for (; it != segments.end() && it->begin < out_.host.end; ++it) {
      const HostState& state = parts_.host.states[static_cast<size_t>(it->state)];
      const int64_t begin = std::max(it->begin, out_.host.begin);
      const int64_t end = std::min(it->end, out_.host.end);
      if (!state.counts || begin >= end) continue;
      if (state.doing == Doing::kSync) {
        out_.points.push_back({begin, PointKind::kWaitBegin, it->state});
        out_.points.push_back({end, PointKind::kWaitEnd, it->state});
      } else if (state.doing == Doing::kData &&
                 static_cast<int32_t>(index) == parts_.host.main_lane) {
        out_.points.push_back({begin, PointKind::kDataBegin, it->state});
        out_.points.push_back({end, PointKind::kDataEnd, it->state});
        out_.data.push_back({begin, end});
      }
    }
  }

  const RankParts& parts_;
  GraphWindow out_;
  std::vector<bool> launching_;  // lanes
};

}  // namespace

GraphWindow read_window(const RankParts& parts, Interval host) {
  return WindowReader(parts, host).run();
}

}  // namespace vitrine
