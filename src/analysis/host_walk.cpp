// A stack of open spans for each host lane, moved forward by every span in order of begin.
#include "analysis/host_walk.h"

#include "analysis/device_time.h"

namespace vitrine {
namespace {

constexpr int64_t kLongCopyNs = 20000;  // a copy call that may have waited for the device

// A region that launches more often than this is launching, whatever its name.
constexpr int64_t kLaunchingRegionNs = 1000000;

struct Frame {
  int64_t end = 0, duration = 0, operators_ns = 0;  // of operators directly inside
  int32_t row = -1;                                 // of an operator
  int32_t state = -1;
  StringId sync_operator = kNoString;
  StringId operation = kNoString;
  Phase phase = Phase::kOther;
  bool known_flops = false, in_operator = false, in_data = false;
  bool forward_again = false;  // inside a forward operator, inside backward
  bool opens_node = false;     // of the autograd graph
  int32_t data_step = -1;      // of the outermost data loading
};

// Forward operators inside one node of the autograd graph. The node's own backward runs after them,
// so what it launches after the last of them is not held.
struct Node {
  std::vector<uint32_t> pending, held;  // launches
  std::vector<StringId> names;          // of forward operators
  void clear() { pending.clear(), held.clear(), names.clear(); }
};

struct LaneWalk {
  std::vector<Frame> stack;
  std::vector<Node> nodes;
  size_t open_nodes = 0;
  int64_t cursor = INT64_MIN;
  int64_t launches = 0, waited_in_data = 0;
  int32_t state = -1;
};

class Walk {
 public:
  Walk(const RankTimeline& timeline, const SpanOrder& order, const StepIndex& steps)
      : timeline_(timeline),
        spans_(timeline.spans),
        order_(order),
        steps_(steps),
        words_(timeline.strings),
        lanes_(timeline.lanes.size()) {
    out_.segments.resize(timeline.lanes.size());
    out_.steps.resize(steps.spans().size());
  }

  HostWalk run() {
    out_.launches.reserve(count_launches());
    host_only_ = !any_device_work();
    for (size_t k = 0; k < order_.size(); ++k) {
      const size_t i = order_[k];
      if (timeline_.lanes[static_cast<size_t>(spans_.lane[i])].device) continue;
      take(i);
    }
    for (size_t lane = 0; lane < lanes_.size(); ++lane) leave(lane, INT64_MAX);
    out_.main_lane = main_lane();
    excuse_launching_regions();
    return std::move(out_);
  }

 private:
  void take(size_t i) {
    const auto lane = static_cast<size_t>(spans_.lane[i]);
    const int64_t begin = spans_.start_ns[i];
    const int64_t duration = std::max<int64_t>(0, spans_.duration_ns[i]);
    leave(lane, begin);
    switch (spans_.kind[i]) {
      case SpanKind::kRuntime:
        return call(i, lane, begin, duration);
      case SpanKind::kOperation:
        return operation(i, lane, begin, duration);
      case SpanKind::kData:
        return data(i, lane, begin, duration);
      case SpanKind::kRegion:
        return region(i, lane, begin, duration);
      case SpanKind::kSync:
        return wait(i, lane, begin, duration);
      case SpanKind::kHost:
        if (words_[spans_.name[i]].profiler) out_.profiler.append({begin, begin + duration});
        return;
      case SpanKind::kStep:
        step_lane_ = spans_.lane[i];
        return;
      default:
        return;
    }
  }

  // Closes what ends no later than `now`, innermost first.
  void leave(size_t index, int64_t now) {
    LaneWalk& lane = lanes_[index];
    while (!lane.stack.empty() && lane.stack.back().end <= now) {
      const Frame frame = lane.stack.back();
      lane.stack.pop_back();
      Frame* parent = lane.stack.empty() ? nullptr : &lane.stack.back();
      if (frame.row >= 0) {
        OperatorTable::Row& row = out_.operator_table[frame.row];
        row.self_ns += std::max<int64_t>(0, frame.duration - frame.operators_ns);
      }
      if (parent) parent->operators_ns += frame.row >= 0 ? frame.duration : frame.operators_ns;
      if (frame.opens_node) close_node(lane);
      if (frame.data_step >= 0) {
        out_.steps[static_cast<size_t>(frame.data_step)].data_ns -=
            std::min(lane.waited_in_data, frame.duration);
        lane.waited_in_data = 0;
      }
      turn_to(index, frame.end, parent ? parent->state : -1);
    }
  }

  // The lane does something else from `at` on.
  void turn_to(size_t index, int64_t at, int32_t next) {
    LaneWalk& lane = lanes_[index];
    if (next == lane.state) return;
    if (lane.state >= 0 && at > lane.cursor) {
      out_.segments[index].push_back({lane.cursor, at, lane.state});
    }
    lane.cursor = std::max(lane.cursor, at);
    lane.state = next;
  }

  HostState& state(int32_t index) { return out_.states[static_cast<size_t>(index)]; }
  int32_t add_state(Doing doing, StringId what, int64_t begin, int64_t duration) {
    HostState state;
    state.doing = doing, state.what = what, state.begin = begin, state.duration_ns = duration;
    out_.states.push_back(state);
    return static_cast<int32_t>(out_.states.size()) - 1;
  }

  Frame child(const LaneWalk& lane, int64_t begin, int64_t duration) const {
    Frame out;
    if (!lane.stack.empty()) out = lane.stack.back();
    out.end = begin + duration, out.duration = duration, out.operators_ns = 0, out.row = -1;
    out.opens_node = false, out.data_step = -1;
    return out;
  }
  void enter(size_t index, int64_t begin, const Frame& frame) {
    turn_to(index, begin, frame.state);
    lanes_[index].stack.push_back(frame);
  }

  HostOfStep* of_step(size_t i) {
    const int32_t place = steps_(spans_.step[i]);
    return place < 0 ? nullptr : &out_.steps[static_cast<size_t>(place)];
  }

  void call(size_t i, size_t index, int64_t begin, int64_t duration) {
    const HostWord& word = words_[spans_.name[i]];
    LaneWalk& lane = lanes_[index];
    if (word.call == CallRole::kStreamWait) {
      out_.stream_waits.push_back({begin, spans_.correlation[i], spans_.lane[i]});
      return;
    }
    const bool launches = word.call == CallRole::kLaunch || word.call == CallRole::kGraphLaunch ||
                          word.call == CallRole::kBlockingCopy;
    if (launches || (word.call == CallRole::kForeign && spans_.correlation[i] != 0)) {
      add_launch(i, lane, begin, duration, word);
    }
    const bool copy = word.call == CallRole::kLaunch && duration >= kLongCopyNs &&
                      timeline_.strings[spans_.name[i]].find("emcpy") != std::string::npos;
    if (word.call == CallRole::kSync || word.call == CallRole::kBlockingCopy || copy) {
      const int32_t id = enter_wait(i, index, begin, duration);
      if (copy) out_.launches.back().copy_state = id, state(id).counts = false;
      if (!copy) count_wait(i, lane, duration);
    } else if (word.call == CallRole::kAllocator) {
      if (HostOfStep* step = of_step(i)) {
        step->allocator_ns += duration;
        ++step->allocator_calls;
      }
      Frame frame = child(lane, begin, duration);
      if (frame.state < 0) {
        frame.state = add_state(Doing::kAllocator, spans_.name[i], begin, duration);
        enter(index, begin, frame);
      }
    }
  }

  int32_t enter_wait(size_t i, size_t index, int64_t begin, int64_t duration) {
    Frame frame = child(lanes_[index], begin, duration);
    const StringId what = frame.sync_operator != kNoString ? frame.sync_operator : spans_.name[i];
    frame.state = add_state(Doing::kSync, what, begin, duration);
    state(frame.state).call = spans_.name[i];
    state(frame.state).correlation = spans_.correlation[i];
    enter(index, begin, frame);
    return frame.state;
  }
  void count_wait(size_t i, LaneWalk& lane, int64_t duration) {
    if (HostOfStep* step = of_step(i)) step->sync_ns += duration;
    if (lane.stack.back().in_data) lane.waited_in_data += duration;
  }
  void wait(size_t i, size_t index, int64_t begin, int64_t duration) {
    enter_wait(i, index, begin, duration);
    count_wait(i, lanes_[index], duration);
  }

  void add_launch(size_t i, LaneWalk& lane, int64_t begin, int64_t duration, const HostWord& word) {
    Launch launch;
    launch.begin = begin, launch.end = begin + duration;
    launch.correlation = spans_.correlation[i];
    launch.name = spans_.name[i], launch.lane = spans_.lane[i];
    launch.graph = word.call == CallRole::kGraphLaunch;
    ++lane.launches;
    if (!lane.stack.empty()) {
      const Frame& around = lane.stack.back();
      launch.operation = around.operation, launch.phase = around.phase;
      launch.known_flops = around.known_flops;
      for (size_t depth = lane.stack.size(); depth-- > 0;) {
        if (lane.stack[depth].row < 0) continue;
        launch.operator_row = lane.stack[depth].row;
        break;
      }
      if (lane.open_nodes > 0) {
        Node& node = lane.nodes[lane.open_nodes - 1];
        (around.forward_again ? node.held : node.pending)
            .push_back(static_cast<uint32_t>(out_.launches.size()));
      }
    }
    // Forward code runs in no region of its own where the user named none.
    if (launch.phase == Phase::kOther && launch.operation != kNoString &&
        !(lane.stack.back().in_data)) {
      launch.phase = Phase::kForward;
    }
    out_.launches.push_back(launch);
  }

  void operation(size_t i, size_t index, int64_t begin, int64_t duration) {
    LaneWalk& lane = lanes_[index];
    const StringId name = spans_.name[i];
    const HostWord& word = words_[name];
    Frame frame = child(lane, begin, duration);
    if (host_only_ && !frame.in_operator && !frame.in_data) {
      out_.operators.append({begin, begin + duration});
    }
    frame.row = out_.operator_table.row(timeline_, name, spans_.shapes[i]);
    OperatorTable::Row& row = out_.operator_table[frame.row];
    ++row.count;
    row.host_ns += duration;
    if (row.flops > 0 && !frame.known_flops) {
      frame.known_flops = true;
      row.outermost += 1;
    }
    frame.operation = name, frame.in_operator = true;
    if (word.operator_phase == Phase::kBackward && frame.phase != Phase::kOptimizer) {
      frame.phase = Phase::kBackward;
      out_.backward_seen = true;
    } else if (word.operator_phase == Phase::kOptimizer && frame.phase == Phase::kOther) {
      frame.phase = Phase::kOptimizer;
    }
    if (word.sync_operator && frame.sync_operator == kNoString) frame.sync_operator = name;
    if (word.backward_node) {
      frame.opens_node = true, frame.forward_again = false;
      open_node(lane);
    } else if (word.forward_only && lane.open_nodes > 0 && !frame.forward_again) {
      frame.forward_again = true;
      Node& node = lane.nodes[lane.open_nodes - 1];
      node.names.push_back(name);
      node.held.insert(node.held.end(), node.pending.begin(), node.pending.end());
      node.pending.clear();
    }
    enter(index, begin, frame);
  }

  void open_node(LaneWalk& lane) {
    if (lane.nodes.size() == lane.open_nodes) lane.nodes.emplace_back();
    lane.nodes[lane.open_nodes++].clear();
  }
  // One forward operator may be part of a hand-written backward; two kinds of them are a forward.
  void close_node(LaneWalk& lane) {
    const Node& node = lane.nodes[--lane.open_nodes];
    const bool two = std::any_of(node.names.begin(), node.names.end(), [&](StringId name) {
      return name != node.names.front();
    });
    if (!two) return;
    for (const uint32_t launch : node.held) out_.launches[launch].recompute = true;
    for (const StringId name : node.names) {
      auto& known = out_.recomputed;
      if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
    }
  }

  void data(size_t i, size_t index, int64_t begin, int64_t duration) {
    LaneWalk& lane = lanes_[index];
    Frame frame = child(lane, begin, duration);
    if (!frame.in_data) {
      frame.in_data = true;
      frame.state = add_state(Doing::kData, spans_.name[i], begin, duration);
      frame.data_step = steps_(spans_.step[i]);
      if (HostOfStep* step = of_step(i)) step->data_ns += duration;
      lane.waited_in_data = 0;
    }
    if (data_lane_ < 0) data_lane_ = spans_.lane[i];
    enter(index, begin, frame);
  }

  void region(size_t i, size_t index, int64_t begin, int64_t duration) {
    const HostWord& word = words_[spans_.name[i]];
    Frame frame = child(lanes_[index], begin, duration);
    if (word.region_phase == Phase::kOptimizer) {
      frame.phase = Phase::kOptimizer;
      out_.optimizer_seen = true;
    } else if (word.region_phase == Phase::kBackward && frame.phase != Phase::kOptimizer) {
      frame.phase = Phase::kBackward;
      out_.backward_seen = true;
    } else if (word.region_phase == Phase::kForward && frame.phase == Phase::kOther) {
      frame.phase = Phase::kForward;
      out_.forward_region_seen = true;
    }
    if (!word.framework_region && !frame.in_data) {
      frame.state = add_state(Doing::kRegion, spans_.name[i], begin, duration);
    }
    enter(index, begin, frame);
  }

  bool any_device_work() const {
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (timeline_.lanes[static_cast<size_t>(spans_.lane[i])].device &&
          device_use(spans_.kind[i]) != DeviceUse::kNone) {
        return true;
      }
    }
    return false;
  }

  // As many as there will be, or a few more: doubling would cost as much memory again.
  size_t count_launches() {
    size_t count = 0;
    for (size_t i = 0; i < spans_.size(); ++i) {
      if (spans_.kind[i] != SpanKind::kRuntime || spans_.correlation[i] == 0) continue;
      const CallRole role = words_[spans_.name[i]].call;
      count += role != CallRole::kOther && role != CallRole::kSync &&
               role != CallRole::kAllocator && role != CallRole::kStreamWait;
    }
    return count;
  }

  // By all threads: autograd's launches while the region's own waits.
  void excuse_launching_regions() {
    const auto at = [&](int64_t time) {
      return std::partition_point(out_.launches.begin(), out_.launches.end(), [&](const Launch& l) {
        return l.begin < time;
      });
    };
    for (HostState& state : out_.states) {
      if (state.doing != Doing::kRegion) continue;
      const int64_t launches = at(state.begin + state.duration_ns) - at(state.begin);
      state.counts = launches * kLaunchingRegionNs <= state.duration_ns;
    }
  }

  int32_t main_lane() const {
    int32_t best = step_lane_;
    int64_t most = step_lane_ >= 0 ? lanes_[static_cast<size_t>(step_lane_)].launches : 0;
    if (most > 0) return best;
    if (data_lane_ >= 0) return data_lane_;
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (lanes_[lane].launches <= most) continue;
      most = lanes_[lane].launches;
      best = static_cast<int32_t>(lane);
    }
    return best;
  }

  const RankTimeline& timeline_;
  const Spans& spans_;
  const SpanOrder& order_;
  const StepIndex& steps_;
  HostWords words_;
  std::vector<LaneWalk> lanes_;
  HostWalk out_;
  int32_t step_lane_ = -1, data_lane_ = -1;
  bool host_only_ = false;
};

}  // namespace

HostWalk walk_host(const RankTimeline& timeline, const SpanOrder& order, const StepIndex& steps) {
  return Walk(timeline, order, steps).run();
}

}  // namespace vitrine
