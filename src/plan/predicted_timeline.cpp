// The unfolded step as timelines, one a pipeline stage.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "plan/unfold.h"

namespace vitrine {
namespace {

int64_t rounded(double ns) { return static_cast<int64_t>(std::llround(ns)); }

enum Lanes : int32_t {
  kHostThread,
  kComputeLane,
  kTensorLane,
  kContextLane,
  kExpertLane,
  kDataLane,
  kSendLane,
  kReceiveLane,
  kCopyLane,
  kSecondDataLane  // a reduction beside the next pass's gathers
};

class StageWriter {
 public:
  StageWriter(Planner& planner,
              const ClusterStrategy& s,
              const StepPieces& pieces,
              const Prediction& prediction,
              int stage)
      : blocks_(planner.blocks(s)), s_(s), pieces_(pieces), prediction_(prediction), stage_(stage) {
    const Mesh& m = s.mesh;
    inner_ = m.tensor * m.context * m.data;
    out_.rank = stage * inner_;
    out_.world_size = m.world();
    out_.source = "predicted";
    out_.info["origin"] = "Vitrine's prediction";
    out_.info["device"] = planner.cluster().card->name;
    out_.info["device.memory_bytes"] = std::to_string(planner.cluster().card->memory_bytes);
    out_.info["backend"] = "nccl";
    const char* const lanes[] = {"thread",
                                 "compute",
                                 "tensor",
                                 "context",
                                 "expert",
                                 "data",
                                 "pipeline send",
                                 "pipeline receive",
                                 "host link",
                                 "data, second"};
    for (int32_t l = 0; l <= kSecondDataLane; ++l) {
      Lane lane;
      lane.name = lanes[l];
      lane.device = l != kHostThread;
      lane.tid = l == kHostThread ? 1 : 6 + l;
      lane.device_index = l == kHostThread ? -1 : 0;
      out_.lanes.push_back(lane);
    }
    group("data", "data parallel", m.data * m.context, m.tensor);
    group("tensor", "tensor parallel", m.tensor, 1);
    group("context", "context parallel", m.context, m.tensor);
    group("expert", "expert parallel", s.expert, 1);
    if (m.pipeline > 1) {
      ProcessGroup g{"pipeline", "pipeline parallel", {}, m.pipeline};
      for (int i = 0; i < m.pipeline; ++i) g.ranks.push_back(i * inner_);
      out_.groups.push_back(g);
    }
  }

  void step(const UnfoldedStep& unfolded, int index, double begin) {
    step_ = index;
    begin_ = begin;
    const double from = unfolded.begin_ns[static_cast<size_t>(stage_)];
    span(kHostThread,
         SpanKind::kStep,
         format("step %d", index),
         from,
         from + unfolded.step_ns,
         -1,
         -1);
    for (const StepEvent& e : unfolded.events) {
      if (e.work == StepWork::kSend && e.peer == stage_ && e.stage != stage_) {
        message("receive", kReceiveLane, SpanKind::kReceive, e, e.stage);
      }
      if (e.stage == stage_) event(e);
    }
    memory(unfolded);
  }
  RankTimeline take() { return std::move(out_); }

 private:
  void group(const char* name, const char* description, int64_t ranks, int64_t stride) {
    if (ranks <= 1) return;
    ProcessGroup g{name, description, {}, static_cast<int32_t>(ranks)};
    for (int64_t i = 0; i < ranks; ++i) {
      g.ranks.push_back(static_cast<int32_t>(out_.rank + i * stride));
    }
    out_.groups.push_back(g);
  }

  size_t span(int32_t lane,
              SpanKind kind,
              const std::string& name,
              double begin,
              double end,
              int block,
              int micro) {
    Spans& spans = out_.spans;
    const int64_t from = rounded(begin_ + begin), to = rounded(begin_ + end);
    spans.start_ns.push_back(from);
    spans.duration_ns.push_back(to - from);
    spans.name.push_back(out_.strings.intern(name));
    spans.kind.push_back(kind);
    spans.lane.push_back(lane);
    spans.step.push_back(step_);
    spans.micro_batch.push_back(micro);
    spans.block.push_back(block < 0 ? kNoString : out_.strings.intern(block_name(block)));
    spans.collective.push_back(-1);
    spans.correlation.push_back(0);
    spans.bytes.push_back(0);
    spans.shapes.push_back(kNoString);
    return spans.size() - 1;
  }

  std::string block_name(int block) const {
    const int kind = blocks_.shard->blocks[static_cast<size_t>(block)];
    return blocks_.shard->kinds[static_cast<size_t>(kind)].name + "." + std::to_string(block);
  }
  const BlockCost& cost(int block) const {
    return blocks_.cost[static_cast<size_t>(blocks_.shard->blocks[static_cast<size_t>(block)])];
  }

  void collective(int32_t lane,
                  SpanKind kind,
                  const char* name,
                  const char* group_name,
                  double begin,
                  double end,
                  double bytes,
                  int block,
                  int micro,
                  int peer = -1) {
    const size_t at = span(lane,
                           kind,
                           std::string(name) + (block < 0 ? "" : " " + block_name(block)),
                           begin,
                           end,
                           block,
                           micro);
    Collective c;
    c.name = out_.strings.intern(name);
    c.group = out_.strings.intern(group_name);
    c.sequence = sequence_[std::string(group_name) + "/" + name + "/" + std::to_string(peer)]++;
    c.dtype = out_.strings.intern("bf16");
    c.in_elements = c.out_elements = rounded(bytes / 2);
    c.sent_bytes = rounded(bytes);
    c.peer = peer;
    for (const ProcessGroup& g : out_.groups) {
      if (g.name != group_name) continue;
      c.ranks = g.ranks;
      c.group_size = g.size;
    }
    out_.spans.collective[at] = static_cast<int32_t>(out_.collectives.size());
    out_.collectives.push_back(std::move(c));
  }

  void message(const char* name, int32_t lane, SpanKind kind, const StepEvent& e, int other) {
    const int kind_of = blocks_.shard->blocks[blocks_.shard->blocks.size() / 2];
    const auto bytes =
        static_cast<double>(blocks_.shard->kinds[static_cast<size_t>(kind_of)].output_bytes);
    collective(
        lane, kind, name, "pipeline", e.begin_ns, e.end_ns, bytes, -1, e.micro, other * inner_);
  }

  // Products of a block, then what of its communication sticks out, on lanes of their own.
  void work(const StepEvent& e, const TimeParts& parts, SpanKind kind, const char* name) {
    const double exposed = parts.tensor + parts.context + parts.expert;
    const double length = e.end_ns - e.begin_ns, whole = parts.total();
    const double scale = whole > 0 ? length / whole : 0;
    double at = e.begin_ns + parts.launch * scale;
    const double products = e.end_ns - exposed * scale;
    if (products > at) {
      span(kComputeLane,
           kind,
           std::string(name) + " " + block_name(e.block),
           at,
           products,
           e.block,
           e.micro);
    }
    at = products;
    const auto part =
        [&](int32_t lane, const char* what, const char* group_name, double ns, double bytes) {
          if (ns <= 0) return;
          collective(lane,
                     SpanKind::kCollective,
                     what,
                     group_name,
                     at,
                     at + ns * scale,
                     bytes,
                     e.block,
                     e.micro);
          at += ns * scale;
        };
    const BlockCost& c = cost(e.block);
    const double half = 0.5;  // a block's bytes are of both ways
    part(kTensorLane,
         s_.sequence_parallel ? "all_gather" : "all_reduce",
         "tensor",
         parts.tensor,
         c.tensor_bytes * half);
    part(kContextLane, "all_gather", "context", parts.context, c.context_bytes * half);
    part(kExpertLane, "all_to_all", "expert", parts.expert, c.expert_bytes * half);
  }

  void event(const StepEvent& e) {
    const StagePieces& own = pieces_.stages[static_cast<size_t>(stage_)];
    switch (e.work) {
      case StepWork::kForward:
        work(e, cost(e.block).forward, SpanKind::kForward, "forward");
        break;
      case StepWork::kBackward: {
        TimeParts parts = cost(e.block).backward_input;
        parts += cost(e.block).recompute;
        if (!weight_gradients_apart(s_)) parts += cost(e.block).backward_weight;
        work(e, parts, SpanKind::kBackward, "backward");
        break;
      }
      case StepWork::kWeight:
        work(e, cost(e.block).backward_weight, SpanKind::kBackward, "weight gradients");
        break;
      case StepWork::kGather:
        collective(kDataLane,
                   SpanKind::kGather,
                   "all_gather",
                   "data",
                   e.begin_ns,
                   e.end_ns,
                   parameters(e.block) * s_.weight_bytes,
                   e.block,
                   e.micro);
        break;
      case StepWork::kReduce:
        collective(e.lane == StepLane::kSend ? kSecondDataLane : kDataLane,
                   SpanKind::kReduce,
                   s_.zero_stage == 0 ? "all_reduce" : "reduce_scatter",
                   "data",
                   e.begin_ns,
                   e.end_ns,
                   own.reduce > 0 ? prediction_.traffic.reduce / blocks_of_stage()
                                  : parameters(e.block) * s_.reduce_bytes,
                   e.block,
                   e.micro);
        break;
      case StepWork::kPublish:
        collective(kDataLane,
                   SpanKind::kGather,
                   "all_gather",
                   "data",
                   e.begin_ns,
                   e.end_ns,
                   prediction_.traffic.publish / blocks_of_stage(),
                   e.block,
                   -1);
        break;
      case StepWork::kUpdate:
        span(kComputeLane, SpanKind::kOptimizer, "optimizer", e.begin_ns, e.end_ns, -1, -1);
        break;
      case StepWork::kOffload:
        span(kCopyLane, SpanKind::kCopy, "offload", e.begin_ns, e.end_ns, -1, -1);
        break;
      case StepWork::kSlow:
        span(kComputeLane,
             SpanKind::kBackward,
             "products beside communication",
             e.begin_ns,
             e.end_ns,
             -1,
             -1);
        break;
      case StepWork::kSend:
        if (e.peer != stage_) message("send", kSendLane, SpanKind::kSend, e, e.peer);
        break;
    }
  }

  double parameters(int block) const {
    const int kind = blocks_.shard->blocks[static_cast<size_t>(block)];
    const ShardBlock& b = blocks_.shard->kinds[static_cast<size_t>(kind)];
    return static_cast<double>(b.parameters + b.expert_parameters);
  }
  double blocks_of_stage() const {
    size_t count = 0;
    for (const auto& chunk : pieces_.stages[static_cast<size_t>(stage_)].chunks) {
      count += chunk.size();
    }
    return static_cast<double>(std::max<size_t>(1, count));
  }

  // Activations grow with each forward that has no backward yet.
  void memory(const UnfoldedStep& unfolded) {
    const StageMemory& peak = prediction_.memory[static_cast<size_t>(stage_)];
    const auto activations = static_cast<size_t>(MemoryCategory::kActivations);
    const auto workspace = static_cast<size_t>(MemoryCategory::kWorkspace);
    const double each = static_cast<double>(peak.bytes[activations]) / std::max(1, peak.in_flight);
    const bool apart = weight_gradients_apart(s_);
    const StepWork closing = apart ? StepWork::kWeight : StepWork::kBackward;
    int alive = 0;
    const auto sample = [&](double time, bool working) {
      MemorySample m{};
      m.time_ns = rounded(begin_ + time);
      m.bytes = peak.bytes;
      m.bytes[activations] = std::min(peak.bytes[activations], rounded(each * alive));
      if (!working) m.bytes[workspace] = 0;
      out_.memory.push_back(m);
    };
    sample(unfolded.begin_ns[static_cast<size_t>(stage_)], false);
    const auto& chunks = pieces_.stages[static_cast<size_t>(stage_)].chunks;
    std::vector<int> first;
    for (const auto& chunk : chunks) {
      if (!chunk.empty()) first.push_back(chunk.front().block);
    }
    const auto holds = [](const std::vector<int>& all, int block) {
      return std::find(all.begin(), all.end(), block) != all.end();
    };
    for (const StepEvent& e : unfolded.events) {
      if (e.stage != stage_ || e.lane != StepLane::kCompute) continue;
      if (e.work == StepWork::kForward && holds(first, e.block)) {
        ++alive;
        sample(e.begin_ns, true);
      } else if (e.work == closing && holds(first, e.block)) {
        --alive;
        sample(e.end_ns, false);
      }
    }
  }

  const Planner::Blocks& blocks_;
  const ClusterStrategy& s_;
  const StepPieces& pieces_;
  const Prediction& prediction_;
  int stage_ = 0, step_ = 0, inner_ = 1;
  double begin_ = 0;
  RankTimeline out_;
  std::map<std::string, int64_t> sequence_;
};

}  // namespace

std::vector<RankTimeline> predicted_timelines(Planner& planner,
                                              const ClusterStrategy& strategy,
                                              int steps) {
  StepPieces pieces;
  const Prediction prediction = planner.predict(strategy, pieces);
  UnfoldedStep unfolded = unfold_step(strategy, pieces);
  std::vector<RankTimeline> out;
  for (int stage = 0; stage < strategy.mesh.pipeline; ++stage) {
    StageWriter writer(planner, strategy, pieces, prediction, stage);
    for (int i = 0; i < steps; ++i) writer.step(unfolded, i, i * unfolded.step_ns);
    out.push_back(writer.take());
  }
  return out;
}

}  // namespace vitrine
