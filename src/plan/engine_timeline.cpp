// Spans of a simulated step.
#include "plan/engine_timeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace vitrine {
namespace {

SpanKind span_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return SpanKind::kForward;
    case ActionKind::kBackward:
      return SpanKind::kBackward;
    case ActionKind::kGather:
    case ActionKind::kPublish:
      return SpanKind::kGather;
    case ActionKind::kReduce:
      return SpanKind::kReduce;
    case ActionKind::kSend:
      return SpanKind::kSend;
    case ActionKind::kReceive:
      return SpanKind::kReceive;
    case ActionKind::kNorm:
    case ActionKind::kUpdate:
    case ActionKind::kReserve:
    case ActionKind::kRelease:
      break;
  }
  return SpanKind::kOptimizer;
}

struct Span {
  int64_t start_ns = 0, duration_ns = 0;
  StringId name = kNoString, block = kNoString;
  SpanKind kind{};
  int32_t lane = 0, micro_batch = -1, collective = -1;
};

class Writer {
 public:
  Writer(const Graph& graph,
         const Strategy& strategy,
         const Schedule& schedule,
         const EngineRankTime& time)
      : graph_(graph),
        strategy_(strategy),
        schedule_(schedule),
        time_(time),
        place_(place_in_mesh(strategy.mesh, schedule.rank)) {}

  RankTimeline write(const EngineMemory& memory, const std::string& description) {
    out_.rank = schedule_.rank;
    out_.world_size = strategy_.mesh.world();
    out_.source = "predicted";
    out_.info = {{"model", description}, {"origin", "predicted"}};
    lane(LaneId::kCompute);
    for (size_t i = 0; i < schedule_.actions.size(); ++i) add_action(i);
    add_waits();
    out_.lanes.push_back({"steps", false, static_cast<int64_t>(out_.lanes.size())});
    Span step;
    step.duration_ns = whole(time_.end_ns);
    step.name = out_.strings.intern("step");
    step.kind = SpanKind::kStep;
    step.lane = static_cast<int32_t>(out_.lanes.size()) - 1;
    spans_.push_back(step);
    std::stable_sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
    });
    for (const Span& span : spans_) push(span);
    add_memory(memory);
    return std::move(out_);
  }

 private:
  static int64_t whole(double ns) { return std::llround(ns); }

  int32_t lane(LaneId id) {
    const auto [it, fresh] = lanes_.try_emplace(id, static_cast<int32_t>(out_.lanes.size()));
    if (fresh) out_.lanes.push_back({lane_name(id), true, it->second});
    return it->second;
  }

  // One sample a moment in time: where several things happen at once, the fullest.
  void add_memory(const EngineMemory& memory) {
    const auto sum = [](const MemoryByCategory& bytes) {
      return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    };
    for (size_t i = 0; i < memory.curve.size(); ++i) {
      const ActionMoment& moment = time_.order[i];
      const ActionTime& at = time_.actions[static_cast<size_t>(moment.action)];
      const int64_t when = whole(moment.end ? at.end_ns : at.begin_ns);
      if (out_.memory.empty() || out_.memory.back().time_ns != when) {
        out_.memory.push_back({when, memory.curve[i]});
      } else if (sum(memory.curve[i]) > sum(out_.memory.back().bytes)) {
        out_.memory.back().bytes = memory.curve[i];
      }
    }
  }

  void add_action(size_t i) {
    const Action& action = schedule_.actions[i];
    if (action.kind == ActionKind::kReserve || action.kind == ActionKind::kRelease) return;
    const ActionTime& at = time_.actions[i];
    Span span;
    span.start_ns = whole(at.begin_ns);
    span.duration_ns = whole(at.end_ns) - span.start_ns;
    span.kind = span_kind(action.kind);
    span.lane = lane(action.lane);
    span.micro_batch = action.micro_batch;
    std::string name = "norm";
    if (action.block >= 0) {
      const std::string& block = graph_.blocks[static_cast<size_t>(action.block)].name;
      span.block = out_.strings.intern(block);
      name = std::string(action_kind_name(action.kind)) + " " + block;
    }
    span.name = out_.strings.intern(name);
    const bool meets = is_communication(span.kind);
    if (meets) span.collective = add_collective(action);
    if (action.kind == ActionKind::kBackward && at.recompute_share > 0) {
      Span again = span;
      again.kind = SpanKind::kRecompute;
      again.duration_ns = whole(static_cast<double>(span.duration_ns) * at.recompute_share);
      spans_.push_back(again);
    }
    if (action.kind == ActionKind::kNorm && out_.world_size > 1) add_exchange(action, span, at);
    spans_.push_back(span);
  }

  // The norm's exchange between all ranks is its last part.
  void add_exchange(const Action& action, const Span& norm, const ActionTime& at) {
    Span span = norm;
    span.kind = SpanKind::kCollective;
    span.start_ns = std::min(norm.start_ns + whole(at.work_ns), norm.start_ns + norm.duration_ns);
    span.duration_ns = norm.start_ns + norm.duration_ns - span.start_ns;
    Collective collective;
    collective.name = out_.strings.intern("all_gather");
    collective.dtype = out_.strings.intern(dtype_name(DType::kU8));
    collective.in_elements = kControlBytes;
    collective.out_elements = kControlBytes * out_.world_size;
    collective.sent_bytes = action.sent_bytes;
    std::vector<int32_t> all(static_cast<size_t>(out_.world_size));
    std::iota(all.begin(), all.end(), 0);
    span.collective = keep(std::move(collective), "control", std::move(all));
    spans_.push_back(span);
  }

  int32_t add_collective(const Action& action) {
    Collective c;
    c.sent_bytes = action.sent_bytes;
    c.peer = action.peer;
    if (action.edge >= 0) {
      const TensorType& type = graph_.edges[static_cast<size_t>(action.edge)].type;
      const bool send = action.kind == ActionKind::kSend;
      c.name = out_.strings.intern(send ? "send" : "receive");
      c.dtype = out_.strings.intern(dtype_name(type.dtype));
      (send ? c.in_elements : c.out_elements) = type.shape.elements();
      const bool down = action.lane == LaneId::kSendDown || action.lane == LaneId::kReceiveDown;
      const auto [low, high] = std::minmax(place_.rank, action.peer);
      return keep(
          std::move(c),
          "ranks" + std::to_string(low) + "-" + std::to_string(high) + (down ? ".down" : ".up"),
          {low, high});
    }
    int64_t own = 0, all = 0;
    for (const int u : action.units) {
      const int64_t elements = graph_.parameters->units[static_cast<size_t>(u)].elements;
      own += shard_range(elements, place_.data_index, strategy_.mesh.data).size();
      all += elements;
    }
    const bool reduce = action.kind == ActionKind::kReduce;
    c.name = out_.strings.intern(reduce ? "reduce_scatter" : "all_gather");
    c.dtype = out_.strings.intern(
        dtype_name(reduce ? strategy_.gradient_dtype : strategy_.compute_dtype));
    c.in_elements = reduce ? all : own;
    c.out_elements = reduce ? own : all;
    return keep(std::move(c),
                "stage" + std::to_string(place_.stage) + "." + lane_name(action.lane),
                {place_.data_group.begin(), place_.data_group.end()});
  }

  int32_t keep(Collective collective, const std::string& group, std::vector<int32_t> ranks) {
    collective.group = out_.strings.intern(group);
    collective.ranks = std::move(ranks);
    collective.sequence = sequences_[group]++;
    out_.collectives.push_back(std::move(collective));
    return static_cast<int32_t>(out_.collectives.size()) - 1;
  }

  // Where the compute lane stands still, it waits for what it runs next.
  void add_waits() {
    double last = 0;
    const int32_t compute = lane(LaneId::kCompute);
    for (size_t i = 0; i <= schedule_.actions.size(); ++i) {
      const bool end = i == schedule_.actions.size();  // and at the end, for all other lanes
      if (!end && schedule_.actions[i].lane != LaneId::kCompute) continue;
      const double begin = end ? time_.end_ns : time_.actions[i].begin_ns;
      if (begin - last >= 1) {
        Span span;
        span.start_ns = whole(last);
        span.duration_ns = whole(begin) - span.start_ns;
        span.name = out_.strings.intern("wait for communication");
        span.kind = SpanKind::kSync;
        span.lane = compute;
        if (!end) {
          const Action& action = schedule_.actions[i];
          span.micro_batch = action.micro_batch;
          if (action.block >= 0)
            span.block = out_.strings.intern(graph_.blocks[static_cast<size_t>(action.block)].name);
        }
        spans_.push_back(span);
      }
      if (!end) last = time_.actions[i].end_ns;
    }
  }

  void push(const Span& span) {
    Spans& to = out_.spans;
    to.start_ns.push_back(span.start_ns);
    to.duration_ns.push_back(span.duration_ns);
    to.name.push_back(span.name);
    to.kind.push_back(span.kind);
    to.lane.push_back(span.lane);
    to.step.push_back(0);
    to.micro_batch.push_back(span.micro_batch);
    to.block.push_back(span.block);
    to.collective.push_back(span.collective);
    to.correlation.push_back(0);
    to.bytes.push_back(0);
    to.shapes.push_back(kNoString);
  }

  const Graph& graph_;
  const Strategy& strategy_;
  const Schedule& schedule_;
  const EngineRankTime& time_;
  MeshPlace place_;
  RankTimeline out_;
  std::vector<Span> spans_;
  std::map<LaneId, int32_t> lanes_;
  std::map<std::string, int64_t> sequences_;
};

}  // namespace

RankTimeline engine_timeline(const Graph& graph,
                             const Strategy& strategy,
                             const Schedule& schedule,
                             const EngineRankTime& time,
                             const EngineMemory& memory,
                             const std::string& description) {
  return Writer(graph, strategy, schedule, time).write(memory, description);
}

}  // namespace vitrine
