// Host points and device work merged by time; each new node is tied to what it can have waited for.
#include "analysis/dependency_graph.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/graph_window.h"
#include "analysis/kernel_classes.h"

namespace vitrine {
namespace {

// Launch queues hold about a thousand; from half of that on a long call may be waiting for room.
constexpr int64_t kFullQueue = 512, kLongCallNs = 100'000;
// How far back a stream is searched for work that an event can stand for.
constexpr size_t kSearched = 256;

class Builder {
 public:
  Builder(const RankParts& parts, Interval host, bool marked)
      : parts_(parts),
        in_(read_window(parts, host)),
        marked_(marked),
        streams_(parts.timeline.lanes.size()),
        waits_before_(in_.launches, INT64_MIN) {
    out_.launches_known = in_.launches_known;
    class_of_name_.assign(parts.timeline.strings.size(), -1);
    if (!marked) lead_until_ = parts.device.front().begin;
  }

  DependencyGraph run() {
    out_.nodes.reserve(in_.device.size() + in_.points.size() + 1);
    out_.edges.reserve(2 * in_.device.size() + in_.points.size() + 1);
    out_.nodes.push_back({0, -1, kConstant, in_.host.begin, 0, 0, 0});
    merge();
    close();
    return std::move(out_);
  }

 private:
  bool from_before(uint32_t i) const {
    const Launch* from = parts_.launch_at(i);
    return from != nullptr ? from->begin < in_.host.begin
                           : parts_.device[i].begin < in_.first_launched_ns;
  }

  // Host points first where times are equal: a kernel may begin with its launch.
  void merge() {
    size_t p = 0;
    for (const uint32_t i : in_.device) {
      while (p < in_.points.size() && in_.points[p].at <= parts_.device[i].begin)
        host_point(in_.points[p++]);
      room_in_queue(parts_.device[i].begin);
      device_node(i);
    }
    while (p < in_.points.size()) host_point(in_.points[p++]);
    room_in_queue(in_.host.end);
    // Where launches aren't known the host's end is tied to nothing, so it would hold back all.
    if (!marked_ || !out_.launches_known) return;
    open_node({0, -1, kConstant, in_.host.end, 0, 0, 0});
    chain_edge(in_.host.end);
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

  void host_point(const HostPoint& point) {
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
      waits_before_[static_cast<size_t>(index - in_.first_launch)] = it->second;
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

  void wait_end(const HostPoint& point) {
    const HostState& state = parts_.host.states[static_cast<size_t>(point.index)];
    depend_on_device(point.at, state.begin, stream_of(state), kClockNs);
  }
  int32_t stream_of(const HostState& state) const {
    const auto it = in_.stream_of_call.find(state.correlation);
    const bool whole = parts_.timeline.strings[state.call].find("DeviceSync") != std::string::npos;
    return it == in_.stream_of_call.end() || whole ? -1 : it->second;
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
      const Launch* from = parts_.launch_at(i);
      if ((from != nullptr ? from->begin : parts_.device[i].begin) >= launched) continue;
      if (end_of_node(node) <= ended) return node;
    }
    return 0;
  }

  // The next launch of this thread waits for what was launched on other streams so far.
  void stream_wait(int32_t index) {
    const StreamWait& wait = parts_.host.stream_waits[static_cast<size_t>(index)];
    const auto it = in_.stream_of_call.find(wait.correlation);
    if (it == in_.stream_of_call.end()) {
      pending_[wait.lane] = wait.begin;
    } else {
      stream_pending_[it->second] = wait.begin;
    }
  }

  ScaleGroup group_of(uint32_t i) {
    if (parts_.device[i].use == DeviceUse::kCommunication) return kCommunicationGroup;
    if (parts_.device[i].use == DeviceUse::kCopy) return kCopyGroup;
    int8_t& kind = class_of_name_[parts_.timeline.spans.name[parts_.device[i].span]];
    if (kind < 0) kind = static_cast<int8_t>(kernel_traits(parts_.name(parts_.device[i])).kind);
    return static_cast<ScaleGroup>(kFirstClassGroup + kind);
  }

  void device_node(uint32_t i) {
    const DeviceSpan& work = parts_.device[i];
    const int64_t duration = work.end - work.begin;
    const bool before = from_before(i);
    open_node(
        {0, static_cast<int32_t>(i), before ? kConstant : group_of(i), work.begin, duration, 0, 0});
    if (before) {
      out_.base_ns = std::max(out_.base_ns, work.end);
      out_.edges.push_back({0, false, kConstant, work.begin - in_.host.begin, 0});
    } else {
      ready_ = INT64_MIN;
      launch_edge(i);
      stream_edge(i);
      wait_edges(i);
      delay(i);
    }
    streams_[parts_.lane_at(i)].push_back(last_node());
    if (parts_.launch_at(i) != nullptr && !before) --queue_;
  }

  void add_edge(GraphEdge edge, int64_t from_ns) {
    out_.edges.push_back(edge);
    ready_ = std::max(ready_, from_ns + edge.fixed_ns + edge.scaled_ns);
  }

  void launch_edge(uint32_t i) {
    const Launch* from = parts_.launch_at(i);
    if (from == nullptr) return;
    const auto node = node_of_launch_.find(parts_.device[i].launch);
    if (node == node_of_launch_.end()) {
      ++before_launch_;
      return;
    }
    // A call that takes longer than a launch usually does (it loads code, say) holds its kernel
    // back.
    const int64_t weight = std::min(parts_.device[i].begin - from->begin,
                                    std::max(in_.latency_ns, from->end - from->begin));
    const int64_t call = from->begin < lead_until_
                             ? 0
                             : std::min(std::max<int64_t>(0, from->end - from->begin), weight);
    add_edge({node->second, false, kHostGroup, weight - call, call}, from->begin);
  }

  void stream_edge(uint32_t i) {
    const auto& nodes = streams_[parts_.lane_at(i)];
    if (nodes.empty()) return;
    const uint32_t node = nodes.back();
    const int64_t begin = parts_.device[i].begin, end = end_of_node(node);
    if (end <= begin)
      return add_edge({node, false, kConstant, std::min(begin - end, in_.hand_over_ns)}, end);
    const int64_t since = out_.nodes[node].begin_ns;
    add_edge({node, true, out_.nodes[node].group, 0, begin - since}, since);
  }

  void depend_on_streams(uint32_t i, int64_t launched_before) {
    for (size_t s = 0; s < streams_.size(); ++s) {
      if (s == parts_.lane_at(i)) continue;
      const uint32_t node = ended_before(s, launched_before, parts_.device[i].begin);
      if (node == 0) continue;
      const int64_t end = end_of_node(node);
      add_edge({node, false, kConstant, std::min(parts_.device[i].begin - end, in_.hand_over_ns)},
               end);
    }
  }

  void wait_edges(uint32_t i) {
    const Launch* from = parts_.launch_at(i);
    if (from == nullptr) return;
    if (const int64_t at =
            waits_before_[static_cast<size_t>(parts_.device[i].launch - in_.first_launch)];
        at != INT64_MIN) {
      depend_on_streams(i, at);
    }
    if (const auto it = stream_pending_.find(static_cast<int32_t>(parts_.lane_at(i)));
        it != stream_pending_.end() && it->second <= from->begin) {
      depend_on_streams(i, it->second);
      stream_pending_.erase(it);
    }
    // Libraries of communication make their stream wait for what was launched before.
    if (!in_.stream_waits_seen && parts_.device[i].use == DeviceUse::kCommunication) {
      depend_on_streams(i, from->begin);
    }
  }

  // What no known dependency explains: another stream's work that ended just before, else a delay.
  void delay(uint32_t i) {
    const int64_t begin = parts_.device[i].begin;
    if (ready_ == INT64_MIN || begin - ready_ > kHandOverNs) {
      int64_t latest = std::max(ready_, begin - kHandOverNs);
      uint32_t found = 0;
      for (size_t s = 0; s < streams_.size(); ++s) {
        if (s == parts_.lane_at(i) || streams_[s].empty()) continue;
        const uint32_t node = ended_before(s, INT64_MAX, begin);
        if (node != 0 && end_of_node(node) > latest) latest = end_of_node(node), found = node;
      }
      if (found != 0) {
        ++by_time_;
        add_edge({found, false, kConstant, std::min(begin - latest, in_.hand_over_ns), 0}, latest);
      }
    }
    if (ready_ == INT64_MIN)
      add_edge({0, false, kConstant, begin - in_.host.begin, 0}, in_.host.begin);
    GraphNode& node = out_.nodes.back();
    node.delay_ns = begin - ready_;
    if (!out_.launches_known) node.data_ns = loading_within({ready_, begin});
  }
  int64_t loading_within(Interval gap) const {
    int64_t sum = 0;
    auto it = std::partition_point(
        in_.data.begin(), in_.data.end(), [&](const Interval& d) { return d.end <= gap.begin; });
    for (; it != in_.data.end() && it->begin < gap.end; ++it) {
      sum += std::min(it->end, gap.end) - std::max(it->begin, gap.begin);
    }
    return sum;
  }

  void close() {
    out_.base_ns = std::max({out_.base_ns, in_.host.begin, lead_until_});
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
    if (in_.stream_of_call.empty() && streams_in_use() > 1) {
      said.push_back(
          in_.stream_waits_seen
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
    if (before_launch_ * 100 > static_cast<int64_t>(in_.device.size())) {
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
  const GraphWindow in_;
  const bool marked_;
  DependencyGraph out_;
  std::vector<std::vector<uint32_t>> streams_;  // nodes by lane
  std::vector<int8_t> class_of_name_;
  std::vector<int64_t> waits_before_;  // by launch from in_.first_launch on: the stream wait's time
  std::unordered_map<int32_t, uint32_t> node_of_launch_;
  std::unordered_map<int32_t, int64_t> pending_, stream_pending_;  // by thread, by stream
  // Without steps the window begins with the device's first work; what the host did before is kept
  // as it was.
  int64_t lead_until_ = INT64_MIN;
  uint32_t host_node_ = 0;
  int64_t host_at_ = in_.host.begin;
  int32_t in_wait_ = 0, in_data_ = 0;
  int64_t queue_ = 0, blocked_until_ = -1, blocked_from_ = 0;
  int64_t ready_ = 0;  // of the node at hand: when all its edges allow it
  int64_t by_time_ = 0, before_launch_ = 0;
  bool queue_was_full_ = false, host_waits_ = false;
};

}  // namespace

DependencyGraph build_graph(const RankParts& parts, Interval host, bool marked) {
  return Builder(parts, host, marked).run();
}

}  // namespace vitrine
