// Building of one rank's schedule from graph and strategy.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/error.h"
#include "schedule/action.h"
#include "schedule/gather_plan.h"

namespace vitrine {
namespace {

class Builder {
 public:
  Builder(const Graph& graph, const Strategy& strategy, int rank, bool forward_only)
      : forward_only_(forward_only),
        graph_(graph),
        table_(*graph.parameters),
        strategy_(strategy),
        place_(place_in_mesh(strategy.mesh, rank)),
        ranks_(strategy.mesh.data) {
    schedule_.rank = rank;
    const auto stages = cut_stages(graph, strategy.mesh.pipeline);
    stage_of_.assign(graph.blocks.size(), 0);
    for (size_t s = 0; s < stages.size(); ++s) {
      for (const int block : stages[s]) stage_of_[static_cast<size_t>(block)] = static_cast<int>(s);
    }
    schedule_.blocks = stages[static_cast<size_t>(place_.stage)];
    for (const Unit& unit : table_.units) {
      for (const int user : unit.users) {
        if (stage_of_[static_cast<size_t>(user)] != stage_of_[static_cast<size_t>(unit.block)]) {
          throw ConfigError("parameters of " + unit.name +
                            " are tied across pipeline stages (block " +
                            graph.blocks[static_cast<size_t>(user)].name +
                            " uses them): untie them or use fewer stages");
        }
      }
    }
  }

  Schedule build() {
    order_ = compute_order(schedule_.blocks, graph_, place_.stage, strategy_, forward_only_);
    compute_action_.assign(order_.size(), -1);
    if (strategy_.shard.parameters && ranks_ > 1) {
      GatherPlan plan = plan_gathers(graph_, strategy_, schedule_.blocks, order_);
      intervals_ = std::move(plan.intervals);
      schedule_.skipped_gathers = std::move(plan.skipped);
      gathers_.assign(intervals_.size(), -1);
    }
    schedule_.forward_end.assign(static_cast<size_t>(strategy_.accumulation), 0);
    schedule_.backward_end.assign(static_cast<size_t>(strategy_.accumulation), 0);
    for (size_t at = 0; at < order_.size(); ++at) {
      release_reduction_before(static_cast<int>(at));
      issue_gathers(static_cast<int>(at));
      issue_compute(static_cast<int>(at));
      issue_releases(static_cast<int>(at));
      const ComputeOp& op = order_[at];
      if (op.backward) issue_reduces(static_cast<int>(at));
      const auto m = static_cast<size_t>(op.micro_batch);
      const bool last_of_micro = at + 1 == order_.size() ||
                                 order_[at + 1].micro_batch != op.micro_batch ||
                                 order_[at + 1].backward != op.backward;
      if (last_of_micro) {
        if (op.backward) flush_reduces(op.micro_batch);
        (op.backward ? schedule_.backward_end : schedule_.forward_end)[m] =
            static_cast<int>(schedule_.actions.size());
      }
    }
    if (!forward_only_) issue_update();
    return std::move(schedule_);
  }

 private:
  int add(Action action) {
    schedule_.actions.push_back(std::move(action));
    return static_cast<int>(schedule_.actions.size()) - 1;
  }

  // Bytes this rank sends in an all_gather of the unit, and in a reduce_scatter of it.
  int64_t gather_sent(const Unit& unit, DType dtype) const {
    return shard_range(unit.elements, place_.data_index, ranks_).size() * (ranks_ - 1) *
           static_cast<int64_t>(dtype_bytes(dtype));
  }
  int64_t scatter_sent(const Unit& unit, DType dtype) const {
    return (unit.elements - shard_range(unit.elements, place_.data_index, ranks_).size()) *
           static_cast<int64_t>(dtype_bytes(dtype));
  }

  void issue_gathers(int at) {
    for (; next_interval_ < intervals_.size() && intervals_[next_interval_].start <= at;
         ++next_interval_) {
      const GatherInterval& interval = intervals_[next_interval_];
      const Unit& unit = table_.units[static_cast<size_t>(interval.unit)];
      Action action;
      action.kind = ActionKind::kGather;
      action.lane = strategy_.overlap ? LaneId::kGather : LaneId::kCompute;
      action.block = unit.block;
      action.micro_batch = order_[static_cast<size_t>(interval.first)].micro_batch;
      action.units = {interval.unit};
      reserve_for(action);
      action.waits.push_back(last_compute_action_);
      action.sent_bytes = gather_sent(unit, strategy_.compute_dtype);
      gathers_[next_interval_] = add(std::move(action));
    }
  }

  // Room for what the gather or reduction fills or works in.
  void reserve_for(const Action& user) {
    Action reserve = user;
    reserve.kind = ActionKind::kReserve;
    reserve.lane = LaneId::kCompute;
    reserve.of_reduction = user.kind == ActionKind::kReduce;
    last_compute_action_ = add(std::move(reserve));
  }

  void issue_releases(int at) {
    for (const GatherInterval& interval : intervals_) {
      if (interval.last != at) continue;
      Action action;
      action.kind = ActionKind::kRelease;
      action.lane = LaneId::kCompute;
      action.block = table_.units[static_cast<size_t>(interval.unit)].block;
      action.micro_batch = order_[static_cast<size_t>(at)].micro_batch;
      action.units = {interval.unit};
      last_compute_action_ = add(std::move(action));
    }
  }

  void issue_compute(int at) {
    const ComputeOp& op = order_[static_cast<size_t>(at)];
    const GraphBlock& block = graph_.blocks[static_cast<size_t>(op.block)];
    Action action;
    action.kind = op.backward ? ActionKind::kBackward : ActionKind::kForward;
    action.lane = LaneId::kCompute;
    action.block = op.block;
    action.micro_batch = op.micro_batch;
    for (size_t i = 0; i < next_interval_; ++i) {
      const GatherInterval& interval = intervals_[i];
      if (at < interval.first || interval.last < at) continue;
      const std::vector<int> needed =
          units_read(graph_, op.block, op.backward, strategy_.recompute);
      if (std::find(needed.begin(), needed.end(), interval.unit) != needed.end()) {
        action.waits.push_back(gathers_[i]);
      }
    }
    if (op.backward) {
      for (const int e : block.outputs) {
        for (const int consumer : graph_.edges[static_cast<size_t>(e)].grad_consumers) {
          const int stage = stage_of_[static_cast<size_t>(consumer)];
          if (stage != place_.stage) action.waits.push_back(receive(e, stage, op, true));
        }
      }
    } else {
      for (const int e : block.inputs) {
        const int producer = graph_.edges[static_cast<size_t>(e)].producer;
        if (producer >= 0 && stage_of_[static_cast<size_t>(producer)] != place_.stage) {
          action.waits.push_back(receive(e, stage_of_[static_cast<size_t>(producer)], op, false));
        }
      }
    }
    std::sort(action.waits.begin(), action.waits.end());
    action.waits.erase(std::unique(action.waits.begin(), action.waits.end()), action.waits.end());
    const int done = add(std::move(action));
    compute_action_[static_cast<size_t>(at)] = done;
    last_compute_action_ = done;
    if (op.backward) {
      send_gradients(op);
    } else {
      for (const int e : block.outputs) {
        std::set<int> stages;
        for (const int consumer : graph_.edges[static_cast<size_t>(e)].consumers) {
          if (runs(consumer)) stages.insert(stage_of_[static_cast<size_t>(consumer)]);
        }
        for (const int stage : stages) {
          if (stage != place_.stage) transfer(e, stage, op, true, false);
        }
      }
    }
  }

  // A gradient goes back once the last local consumer (lowest in backward order) has added its
  // part.
  void send_gradients(const ComputeOp& op) {
    for (size_t e = 0; e < graph_.edges.size(); ++e) {
      const Edge& edge = graph_.edges[e];
      if (edge.producer < 0) continue;
      const int stage = stage_of_[static_cast<size_t>(edge.producer)];
      if (stage == place_.stage) continue;
      int last = -1;
      for (const int consumer : edge.grad_consumers) {
        if (stage_of_[static_cast<size_t>(consumer)] == place_.stage && last < 0) last = consumer;
      }
      if (last == op.block) transfer(static_cast<int>(e), stage, op, true, true);
    }
  }

  bool runs(int block) const {
    return forward_only_ || graph_.blocks[static_cast<size_t>(block)].feeds_loss;
  }

  // The block of `stage` after which the edge's value (its gradient) is sent from there; -1: it is
  // not sent here.
  int sent_after(const Edge& edge, int stage, bool gradient) const {
    const auto stage_of = [&](int block) { return stage_of_[static_cast<size_t>(block)]; };
    if (edge.producer < 0 || stage_of(edge.producer) != (gradient ? place_.stage : stage))
      return -1;
    for (const int consumer : gradient ? edge.grad_consumers : edge.consumers) {
      if (gradient && stage_of(consumer) == stage) return consumer;
      if (!gradient && stage_of(consumer) == place_.stage && runs(consumer)) return edge.producer;
    }
    return -1;
  }

  // The other stage sends in the order of its blocks, which need not be that of uses here (a value
  // may skip blocks): what it sends before this one is received before.
  int receive(int e, int stage, const ComputeOp& op, bool gradient) {
    const int last = sent_after(graph_.edges[static_cast<size_t>(e)], stage, gradient);
    std::vector<std::pair<int, int>> earlier;
    for (int other = 0; other < static_cast<int>(graph_.edges.size()); ++other) {
      const int after = sent_after(graph_.edges[static_cast<size_t>(other)], stage, gradient);
      if (after < 0) continue;
      const bool before = gradient ? after > last : after < last;
      if (before || (after == last && other < e))
        earlier.emplace_back(gradient ? -after : after, other);
    }
    std::sort(earlier.begin(), earlier.end());
    for (const auto& [after, other] : earlier) transfer(other, stage, op, false, gradient);
    return transfer(e, stage, op, false, gradient);
  }

  // A send or receive of an edge's value or gradient; a receive is made once an edge and
  // micro-batch.
  int transfer(int e, int other_stage, const ComputeOp& op, bool send, bool gradient) {
    const std::tuple<int, int, int, bool> key{e, op.micro_batch, other_stage, gradient};
    if (!send) {
      const auto known = received_.find(key);
      if (known != received_.end()) return known->second;
    }
    Action action;
    action.kind = send ? ActionKind::kSend : ActionKind::kReceive;
    action.lane = gradient ? (send ? LaneId::kSendUp : LaneId::kReceiveUp)
                           : (send ? LaneId::kSendDown : LaneId::kReceiveDown);
    action.edge = e;
    action.micro_batch = op.micro_batch;
    action.block = graph_.edges[static_cast<size_t>(e)].producer;
    action.peer = place_.pipeline_group[static_cast<size_t>(other_stage)];
    if (send) {
      action.waits.push_back(last_compute_action_);
      action.sent_bytes = graph_.edges[static_cast<size_t>(e)].type.bytes();
    } else if (last_compute_action_ >= 0) {
      // One action ahead of its use, which bounds the buffers held.
      action.waits.push_back(last_compute_action_);
    }
    const int index = add(std::move(action));
    if (!send) received_[key] = index;
    return index;
  }

  // Units whose last local use in this micro-batch's backward was the op just issued.
  void issue_reduces(int at) {
    if (ranks_ == 1) return;
    const ComputeOp& op = order_[static_cast<size_t>(at)];
    const bool every_micro = strategy_.shard.gradients;
    if (!every_micro && op.micro_batch != strategy_.accumulation - 1) return;
    for (size_t u = 0; u < table_.units.size(); ++u) {
      const Unit& unit = table_.units[u];
      if (unit.frozen) continue;
      int last = -1;
      for (const int user : unit.users) {
        if (graph_.blocks[static_cast<size_t>(user)].tape->needs_backward() && last < 0)
          last = user;
      }
      if (last != op.block) continue;
      if (!bucket_.empty() && bucket_elements_ + unit.elements > strategy_.reduce_bucket) {
        flush_reduces(op.micro_batch);
      }
      bucket_.push_back(static_cast<int>(u));
      bucket_elements_ += unit.elements;
      if (bucket_elements_ >= strategy_.reduce_bucket) flush_reduces(op.micro_batch);
    }
  }

  // One reduction runs beside the compute lane, which lets go of what it was made from before the
  // next one begins (the reduce lane would do one after the other anyway). Between micro-batches:
  // before its units' gradients are written again, and before the forward that a backward follows,
  // where activations are at their highest.
  void release_reduction_before(int at) {
    if (!reducing_) return;
    const auto next = static_cast<size_t>(at) + 1;
    const ComputeOp& op = order_[static_cast<size_t>(at)];
    bool due = !op.backward && next < order_.size() && order_[next].backward;
    if (op.backward) {
      for (const ParameterUse use : table_.uses[static_cast<size_t>(op.block)]) {
        due = due || std::find(reducing_->units.begin(), reducing_->units.end(), use.unit) !=
                         reducing_->units.end();
      }
    }
    if (due) release_reduction();
  }

  void release_reduction() {
    if (!reducing_) return;
    last_compute_action_ = add(std::move(*reducing_));
    reducing_.reset();
  }

  void flush_reduces(int micro) {
    if (bucket_.empty()) return;
    release_reduction();
    Action action;
    action.kind = ActionKind::kReduce;
    action.lane = strategy_.overlap ? LaneId::kReduce : LaneId::kCompute;
    action.micro_batch = micro;
    action.block = table_.units[static_cast<size_t>(bucket_.back())].block;
    action.units = std::move(bucket_);
    action.first_micro = micro == 0;
    reserve_for(action);
    reducing_ = action;
    reducing_->kind = ActionKind::kRelease;
    reducing_->lane = LaneId::kCompute;
    reducing_->of_reduction = true;
    action.waits.push_back(last_compute_action_);
    for (const int u : action.units) {
      const Unit& unit = table_.units[static_cast<size_t>(u)];
      action.sent_bytes += scatter_sent(unit, strategy_.gradient_dtype);
      if (!strategy_.shard.optimizer)
        action.sent_bytes += gather_sent(unit, strategy_.gradient_dtype);
    }
    reducing_->waits = {add(std::move(action))};
    bucket_.clear();
    bucket_elements_ = 0;
    if (!strategy_.overlap) release_reduction();
  }

  void issue_update() {
    release_reduction();  // the last: every other was let go before
    Action norm;
    norm.kind = ActionKind::kNorm;
    norm.lane = LaneId::kCompute;
    norm.sent_bytes = kControlBytes * (strategy_.mesh.world() - 1);
    add(std::move(norm));
    std::vector<int> bucket, updates;
    int64_t elements = 0;
    const auto flush = [&] {
      if (bucket.empty()) return;
      Action publish;
      publish.kind = ActionKind::kPublish;
      publish.lane = strategy_.overlap ? LaneId::kGather : LaneId::kCompute;
      publish.block = table_.units[static_cast<size_t>(bucket.front())].block;
      publish.units = std::move(bucket);
      publish.waits = std::move(updates);
      for (const int u : publish.units) {
        publish.sent_bytes +=
            gather_sent(table_.units[static_cast<size_t>(u)], strategy_.compute_dtype);
      }
      add(std::move(publish));
      bucket.clear();
      updates.clear();
      elements = 0;
    };
    for (size_t u = 0; u < table_.units.size(); ++u) {
      const Unit& unit = table_.units[u];
      if (unit.frozen || stage_of_[static_cast<size_t>(unit.block)] != place_.stage) continue;
      Action update;
      update.kind = ActionKind::kUpdate;
      update.lane = LaneId::kCompute;
      update.block = unit.block;
      update.units = {static_cast<int>(u)};
      const int index = add(std::move(update));
      const bool replicated = !strategy_.shard.parameters || unit.persistent;
      if (ranks_ == 1 || !strategy_.shard.optimizer || !replicated) continue;
      if (!bucket.empty() && elements + unit.elements > strategy_.gather_bucket) flush();
      bucket.push_back(static_cast<int>(u));
      updates.push_back(index);
      elements += unit.elements;
    }
    flush();
  }

  bool forward_only_;
  const Graph& graph_;
  const ParameterTable& table_;
  const Strategy& strategy_;
  MeshPlace place_;
  int ranks_;
  Schedule schedule_;
  std::vector<int> stage_of_;
  std::vector<ComputeOp> order_;
  std::vector<int> compute_action_;
  std::vector<GatherInterval> intervals_;
  std::vector<int> gathers_;  // the action of each that was issued
  size_t next_interval_ = 0;
  int last_compute_action_ = -1;
  std::map<std::tuple<int, int, int, bool>, int> received_;
  std::vector<int> bucket_;
  std::optional<Action> reducing_;  // the release of the reduction that runs now
  int64_t bucket_elements_ = 0;
};

}  // namespace

Schedule build_schedule(const Graph& graph, const Strategy& strategy, int rank, bool forward_only) {
  strategy.validate();
  return Builder(graph, strategy, rank, forward_only).build();
}

}  // namespace vitrine
