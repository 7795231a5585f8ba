// Host points and device work merged by time; each new node is tied to what it can have waited for.
#include "analysis/dependency_graph.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/kernel_classes.h"
#include "analysis/statistics.h"

namespace vitrine {
namespace {

// A device begins its next kernel within this; more has a cause.
constexpr int64_t kHandOverNs = 10'000;
// A launch in an unloaded queue, where none was seen in the window.
constexpr int64_t kUsualLatencyNs = 5'000;
// Launch queues hold about a thousand; from half of that on a long call may be waiting for room.
constexpr int64_t kFullQueue = 512, kLongCallNs = 100'000;
// The clocks of host and device agree to about this.
constexpr int64_t kClockNs = 20'000;
// How far back a stream is searched for work that an event can stand for.
constexpr size_t kSearched = 256;

enum class PointKind : uint8_t { kWaitEnd, kDataEnd, kStreamWait, kDataBegin, kWaitBegin, kLaunch };
struct Point {
  int64_t at;
  PointKind kind;
  int32_t index;  // launch, state or stream wait
};

class Builder {
 public:
  Builder(const RankParts& parts, Interval host, bool marked)
      : parts_(parts), window_(host), marked_(marked), streams_(parts.timeline.lanes.size()) {
    class_of_name_.assign(parts.timeline.strings.size(), -1);
    if (!marked) lead_until_ = parts.device.front().begin;
  }

  DependencyGraph run() {
    select_device();
    learn_delays();
    read_sync_rows();
    collect_points();
    out_.nodes.reserve(chosen_.size() + points_.size() + 1);
    out_.edges.reserve(2 * chosen_.size() + points_.size() + 1);
    out_.nodes.push_back({0, -1, kConstant, window_.begin, 0, 0, 0});
    merge();
    close();
    return std::move(out_);
  }

 private:
  const DeviceSpan& span(uint32_t i) const { return parts_.device[i]; }
  const Launch* launch(uint32_t i) const { return parts_.launch(parts_.device[i]); }
  size_t lane(uint32_t i) const {
    return static_cast<size_t>(parts_.timeline.spans.lane[span(i).span]);
  }

  // What was launched in the window; work before it only where it is still running or queued.
  void select_device() {
    int64_t known = 0, all = 0, first = INT64_MAX;
    for (uint32_t i = 0; i < parts_.device.size(); ++i) {
      const Launch* from = launch(i);
      if (from != nullptr ? from->begin >= window_.end : span(i).begin >= window_.end) continue;
      if (span(i).end < window_.begin) continue;
      chosen_.push_back(i);
      ++all, known += from != nullptr;
      if (from != nullptr && from->begin >= window_.begin) first = std::min(first, span(i).begin);
    }
    out_.launches_known = 2 * known > all;
    // Work without a launch was launched before the recording where launched work follows it.
    first_launched_ = out_.launches_known ? first : window_.begin;
  }
  bool from_before(uint32_t i) const {
    const Launch* from = launch(i);
    return from != nullptr ? from->begin < window_.begin : span(i).begin < first_launched_;
  }

  // Medians of the window: launches to an idle stream, and from kernel to kernel of those that were
  // launched well before.
  void learn_delays() {
    std::vector<int64_t> launched, queued, busy_until(streams_.size(), INT64_MIN);
    for (const uint32_t i : chosen_) {
      int64_t& until = busy_until[lane(i)];
      const Launch* from = launch(i);
      if (from != nullptr && from->begin <= span(i).begin) {
        if (until <= from->begin && span(i).begin - from->begin <= kClockNs) {
          launched.push_back(span(i).begin - from->begin);
        } else if (from->end + kClockNs <= until && until <= span(i).begin &&
                   span(i).begin - until <= kHandOverNs) {
          queued.push_back(span(i).begin - until);
        }
      }
      until = std::max(until, span(i).end);
    }
    latency_ = launched.empty() ? kUsualLatencyNs : median(std::move(launched));
    hand_over_ = median(std::move(queued));
  }

  // Rows of synchronisation on the device say which stream waits, and which is waited for.
  void read_sync_rows() {
    const Spans& spans = parts_.timeline.spans;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (spans.kind[i] != SpanKind::kSync || spans.correlation[i] == 0) continue;
      if (!parts_.timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
      stream_of_call_[spans.correlation[i]] = spans.lane[i];
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
    const auto first = after(host.launches, window_.begin);
    const auto last = after(host.launches, window_.end);
    first_launch_ = first - host.launches.begin();
    waits_before_.assign(static_cast<size_t>(last - first), INT64_MIN);
    for (auto it = first; it != last; ++it) {
      launching_[static_cast<size_t>(it->lane)] = true;
      if (it->device_spans == 0) continue;
      points_.push_back(
          {it->begin, PointKind::kLaunch, static_cast<int32_t>(it - host.launches.begin())});
    }
    for (size_t index = 0; index < host.segments.size(); ++index) {
      if (lane_counts(index)) collect_segments(index);
    }
    const auto& waits = host.stream_waits;
    for (auto it = after(waits, window_.begin); it != waits.end() && it->begin < window_.end;
         ++it) {
      points_.push_back(
          {it->begin, PointKind::kStreamWait, static_cast<int32_t>(it - waits.begin())});
      stream_waits_seen_ = true;
    }
    std::stable_sort(points_.begin(), points_.end(), [](const Point& a, const Point& b) {
      return a.at != b.at ? a.at < b.at : a.kind < b.kind;
    });
  }

  void collect_segments(size_t index) {
    const auto& segments = parts_.host.segments[index];
    auto it = std::partition_point(segments.begin(), segments.end(), [&](const HostSegment& s) {
      return s.end <= window_.begin;
    });
    for (; it != segments.end() && it->begin < window_.end; ++it) {
      const HostState& state = parts_.host.states[static_cast<size_t>(it->state)];
      const int64_t begin = std::max(it->begin, window_.begin);
      const int64_t end = std::min(it->end, window_.end);
      if (!state.counts || begin >= end) continue;
      if (state.doing == Doing::kSync) {
        points_.push_back({begin, PointKind::kWaitBegin, it->state});
        points_.push_back({end, PointKind::kWaitEnd, it->state});
      } else if (state.doing == Doing::kData &&
                 static_cast<int32_t>(index) == parts_.host.main_lane) {
        points_.push_back({begin, PointKind::kDataBegin, it->state});
        points_.push_back({end, PointKind::kDataEnd, it->state});
        data_.push_back({begin, end});
      }
    }
  }

  // Host points first where times are equal: a kernel may begin with its launch.
  void merge() {
    size_t p = 0;
    for (const uint32_t i : chosen_) {
      while (p < points_.size() && points_[p].at <= span(i).begin) host_point(points_[p++]);
      room_in_queue(span(i).begin);
      device_node(i);
    }
    while (p < points_.size()) host_point(points_[p++]);
    room_in_queue(window_.end);
    // Where launches aren't known the host's end is tied to nothing, so it would hold back all.
    if (!marked_ || !out_.launches_known) return;
    open_node({0, -1, kConstant, window_.end, 0, 0, 0});
    chain_edge(window_.end);
  }

  GraphNode& open_node(GraphNode node) {
    node.first_edge = static_cast<uint32_t>(out_.edges.size());
    out_.nodes.push_back(node);
    return out_.nodes.back();
  }
  uint32_t last_node() const { return static_cast<uint32_t>(out_.nodes.size()) - 1; }

  // The host went on from its last point.
  void chain_edge(int64_t at) {
    const ScaleGroup group = in_data_ > 0 && in_wait_ == 0 ? kDataGroup : kHostGroup;
    const int64_t lead = lead_until_ <= host_at_ ? 0 : std::min(lead_until_, at) - host_at_;
    out_.edges.push_back({host_node_, false, group, lead, at - host_at_ - lead});
    host_node_ = last_node(), host_at_ = at;
  }

  void host_point(const Point& point) {
    room_in_queue(point.at);
    if (point.kind == PointKind::kStreamWait) return stream_wait(point.index);
    open_node({0, -1, kConstant, point.at, 0, 0, 0});
    if (point.kind == PointKind::kWaitEnd) {
      --in_wait_;
      wait_end(point);
      return;
    }
    chain_edge(point.at);
    if (point.kind == PointKind::kWaitBegin) ++in_wait_;
    if (point.kind == PointKind::kDataBegin) ++in_data_;
    if (point.kind == PointKind::kDataEnd) --in_data_;
    if (point.kind == PointKind::kLaunch) launch_point(point.index);
  }

  void launch_point(int32_t index) {
    const Launch& from = parts_.host.launches[static_cast<size_t>(index)];
    node_of_launch_[index] = last_node();
    if (const auto it = pending_.find(from.lane); it != pending_.end()) {
      waits_before_[static_cast<size_t>(index - first_launch_)] = it->second;
      pending_.erase(it);
    }
    queue_ += from.device_spans;
    if (from.end - from.begin >= kLongCallNs && queue_ >= kFullQueue && blocked_until_ < 0) {
      blocked_until_ = from.end, blocked_from_ = from.begin;
    }
  }

  // The launch call that found the queue full has returned.
  void room_in_queue(int64_t now) {
    if (blocked_until_ < 0 || now < blocked_until_) return;
    const int64_t at = blocked_until_;
    blocked_until_ = -1;
    if (at <= host_at_) return;
    open_node({0, -1, kConstant, at, 0, 0, 0});
    depend_on_device(at, blocked_from_, -1, 0);
    queue_was_full_ = true;
  }

  void wait_end(const Point& point) {
    const HostState& state = parts_.host.states[static_cast<size_t>(point.index)];
    depend_on_device(point.at, state.begin, stream_of(state), kClockNs);
  }
  int32_t stream_of(const HostState& state) const {
    const auto it = stream_of_call_.find(state.correlation);
    const bool whole = parts_.timeline.strings[state.call].find("DeviceSync") != std::string::npos;
    return it == stream_of_call_.end() || whole ? -1 : it->second;
  }

  // The host point that was just opened waited for the work that ended last before it, give or take
  // `slack` between the clocks.
  void depend_on_device(int64_t at, int64_t since, int32_t stream, int64_t slack) {
    int64_t latest = INT64_MIN;
    uint32_t found = 0;
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (stream >= 0 && static_cast<size_t>(stream) != s) continue;
      const uint32_t node = ended_before(s, since, at + slack);
      if (node != 0 && end_of_node(node) > latest) latest = end_of_node(node), found = node;
    }
    if (found == 0 || latest <= since) return chain_edge(at);  // it took its time by itself
    host_waits_ = true;
    out_.edges.push_back({found, false, kConstant, at - latest, 0});
    out_.edges.push_back({host_node_, false, kConstant, 0, 0});
    host_node_ = last_node(), host_at_ = at;
  }

  int64_t end_of_node(uint32_t node) const {
    return out_.nodes[node].begin_ns + out_.nodes[node].duration_ns;
  }
  // The latest work of a stream that was launched before `launched` and ended by `ended`; 0: none.
  uint32_t ended_before(size_t stream, int64_t launched, int64_t ended) const {
    const auto& nodes = streams_[stream];
    for (size_t back = 0; back < std::min(nodes.size(), kSearched); ++back) {
      const uint32_t node = nodes[nodes.size() - 1 - back];
      const auto i = static_cast<uint32_t>(out_.nodes[node].device);
      const Launch* from = launch(i);
      if ((from != nullptr ? from->begin : span(i).begin) >= launched) continue;
      if (end_of_node(node) <= ended) return node;
    }
    return 0;
  }

  // The next launch of this thread waits for what was launched on other streams so far.
  void stream_wait(int32_t index) {
    const StreamWait& wait = parts_.host.stream_waits[static_cast<size_t>(index)];
    const auto it = stream_of_call_.find(wait.correlation);
    if (it == stream_of_call_.end()) {
      pending_[wait.lane] = wait.begin;
    } else {
      stream_pending_[it->second] = wait.begin;
    }
  }

  ScaleGroup group_of(uint32_t i) {
    if (span(i).use == DeviceUse::kCommunication) return kCommunicationGroup;
    if (span(i).use == DeviceUse::kCopy) return kCopyGroup;
    int8_t& kind = class_of_name_[parts_.timeline.spans.name[span(i).span]];
    if (kind < 0) kind = static_cast<int8_t>(kernel_traits(parts_.name(span(i))).kind);
    return static_cast<ScaleGroup>(kFirstClassGroup + kind);
  }

  void device_node(uint32_t i) {
    const DeviceSpan& work = span(i);
    const int64_t duration = work.end - work.begin;
    const bool before = from_before(i);
    open_node(
        {0, static_cast<int32_t>(i), before ? kConstant : group_of(i), work.begin, duration, 0, 0});
    if (before) {
      out_.base_ns = std::max(out_.base_ns, work.end);
      out_.edges.push_back({0, false, kConstant, work.begin - window_.begin, 0});
    } else {
      ready_ = INT64_MIN;
      launch_edge(i);
      stream_edge(i);
      wait_edges(i);
      delay(i);
    }
    streams_[lane(i)].push_back(last_node());
    if (launch(i) != nullptr && !before) --queue_;
  }

  void add_edge(GraphEdge edge, int64_t from_ns) {
    out_.edges.push_back(edge);
    ready_ = std::max(ready_, from_ns + edge.fixed_ns + edge.scaled_ns);
  }

  void launch_edge(uint32_t i) {
    const Launch* from = launch(i);
    if (from == nullptr) return;
    const auto node = node_of_launch_.find(span(i).launch);
    if (node == node_of_launch_.end()) {
      ++before_launch_;
      return;
    }
    // A call that takes longer than a launch usually does (it loads code, say) holds its kernel
    // back.
    const int64_t weight =
        std::min(span(i).begin - from->begin, std::max(latency_, from->end - from->begin));
    const int64_t call = from->begin < lead_until_
                             ? 0
                             : std::min(std::max<int64_t>(0, from->end - from->begin), weight);
    add_edge({node->second, false, kHostGroup, weight - call, call}, from->begin);
  }

  void stream_edge(uint32_t i) {
    const auto& nodes = streams_[lane(i)];
    if (nodes.empty()) return;
    const uint32_t node = nodes.back();
    const int64_t begin = span(i).begin, end = end_of_node(node);
    if (end <= begin)
      return add_edge({node, false, kConstant, std::min(begin - end, hand_over_)}, end);
    const int64_t since = out_.nodes[node].begin_ns;
    add_edge({node, true, out_.nodes[node].group, 0, begin - since}, since);
  }

  void depend_on_streams(uint32_t i, int64_t launched_before) {
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (s == lane(i)) continue;
      const uint32_t node = ended_before(s, launched_before, span(i).begin);
      if (node == 0) continue;
      const int64_t end = end_of_node(node);
      add_edge({node, false, kConstant, std::min(span(i).begin - end, hand_over_)}, end);
    }
  }

  void wait_edges(uint32_t i) {
    const Launch* from = launch(i);
    if (from == nullptr) return;
    if (const int64_t at = waits_before_[static_cast<size_t>(span(i).launch - first_launch_)];
        at != INT64_MIN) {
      depend_on_streams(i, at);
    }
    if (const auto it = stream_pending_.find(static_cast<int32_t>(lane(i)));
        it != stream_pending_.end() && it->second <= from->begin) {
      depend_on_streams(i, it->second);
      stream_pending_.erase(it);
    }
    // Libraries of communication make their stream wait for what was launched before.
    if (!stream_waits_seen_ && span(i).use == DeviceUse::kCommunication) {
      depend_on_streams(i, from->begin);
    }
  }

  // What no known dependency explains: another stream's work that ended just before, else a delay.
  void delay(uint32_t i) {
    const int64_t begin = span(i).begin;
    if (ready_ == INT64_MIN || begin - ready_ > kHandOverNs) {
      int64_t latest = std::max(ready_, begin - kHandOverNs);
      uint32_t found = 0;
      for (size_t s = 0; s < streams_.size(); ++s) {
        if (s == lane(i) || streams_[s].empty()) continue;
        const uint32_t node = ended_before(s, INT64_MAX, begin);
        if (node != 0 && end_of_node(node) > latest) latest = end_of_node(node), found = node;
      }
      if (found != 0) {
        ++by_time_;
        add_edge({found, false, kConstant, std::min(begin - latest, hand_over_), 0}, latest);
      }
    }
    if (ready_ == INT64_MIN)
      add_edge({0, false, kConstant, begin - window_.begin, 0}, window_.begin);
    GraphNode& node = out_.nodes.back();
    node.delay_ns = begin - ready_;
    if (!out_.launches_known) node.data_ns = loading_within({ready_, begin});
  }
  int64_t loading_within(Interval gap) const {
    int64_t sum = 0;
    auto it = std::partition_point(
        data_.begin(), data_.end(), [&](const Interval& d) { return d.end <= gap.begin; });
    for (; it != data_.end() && it->begin < gap.end; ++it) {
      sum += std::min(it->end, gap.end) - std::max(it->begin, gap.begin);
    }
    return sum;
  }

  void close() {
    out_.base_ns = std::max({out_.base_ns, window_.begin, lead_until_});
    for (uint32_t i = 0; i < out_.nodes.size(); ++i) {
      out_.end_ns = std::max(out_.end_ns, end_of_node(i));
    }
    auto& said = out_.inferred;
    if (!out_.launches_known) {
      said.push_back("launches are not recorded: what the host's speed would change is not known");
    } else {
      said.push_back("the host's threads are taken as one row of calls");
      if (!host_waits_) {
        said.push_back(
            "no call is recorded in which the host waits for the device: if it does, the path "
            "through the device is longer than it seems");
      }
    }
    if (stream_of_call_.empty() && streams_in_use() > 1) {
      said.push_back(
          stream_waits_seen_
              ? "which events streams wait for is not recorded (no cuda_sync rows): a stream that "
                "waits is taken to wait for all that other streams were given before"
              : "no waits between streams are recorded: a kernel that begins as another stream's "
                "work ends is taken to wait for it");
    }
    if (by_time_ > 0) {
      said.push_back(std::to_string(by_time_) +
                     " dependencies between streams were inferred from times alone");
    }
    if (queue_was_full_) {
      said.push_back("long launch calls with a full queue are taken to wait for the device");
    }
    if (before_launch_ * 100 > static_cast<int64_t>(chosen_.size())) {
      said.push_back(std::to_string(before_launch_) +
                     " kernels begin before their launch by their clock: that launch bounds them "
                     "is left out");
    }
  }
  int64_t streams_in_use() const {
    return std::count_if(
        streams_.begin(), streams_.end(), [](const auto& nodes) { return !nodes.empty(); });
  }

  const RankParts& parts_;
  const Interval window_;
  const bool marked_;
  DependencyGraph out_;
  std::vector<uint32_t> chosen_;  // into RankParts::device
  std::vector<Point> points_;
  std::vector<Interval> data_;
  std::vector<std::vector<uint32_t>> streams_;  // nodes by lane
  std::vector<bool> launching_;                 // lanes
  std::vector<int8_t> class_of_name_;
  std::vector<int64_t> waits_before_;  // by launch from first_launch_ on: the stream wait's time
  std::unordered_map<int32_t, uint32_t> node_of_launch_;
  std::unordered_map<int64_t, int32_t> stream_of_call_;
  std::unordered_map<int32_t, int64_t> pending_, stream_pending_;  // by thread, by stream
  // Without steps the window begins with the device's first work; what the host did before is kept
  // as it was.
  int64_t lead_until_ = INT64_MIN;
  ptrdiff_t first_launch_ = 0;
  int64_t first_launched_ = 0, latency_ = 0, hand_over_ = 0;
  uint32_t host_node_ = 0;
  int64_t host_at_ = window_.begin;
  int32_t in_wait_ = 0, in_data_ = 0;
  int64_t queue_ = 0, blocked_until_ = -1, blocked_from_ = 0;
  int64_t ready_ = 0;  // of the node at hand: when all its edges allow it
  int64_t by_time_ = 0, before_launch_ = 0;
  bool stream_waits_seen_ = false, queue_was_full_ = false, host_waits_ = false;
};

}  // namespace

DependencyGraph build_graph(const RankParts& parts, Interval host, bool marked) {
  return Builder(parts, host, marked).run();
}

}  // namespace vitrine
