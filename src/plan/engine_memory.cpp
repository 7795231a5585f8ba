// The replay. Its ledger is the engine's, so peaks mean the same.
#include "plan/engine_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "comm/communicator.h"
#include "schedule/edge_uses.h"
#include "schedule/memory.h"

namespace vitrine {
namespace {

constexpr auto kLanes = static_cast<size_t>(LaneId::kCount);

// Bytes of a bucket of units: whole, and by rank.
struct BucketBytes {
  std::vector<int64_t> part;  // elements
  int64_t total = 0;          // elements

  BucketBytes(const ParameterTable& table, const std::vector<int>& units, int ranks)
      : part(static_cast<size_t>(ranks), 0) {
    for (const int u : units) {
      const int64_t elements = table.units[static_cast<size_t>(u)].elements;
      total += elements;
      for (int r = 0; r < ranks; ++r)
        part[static_cast<size_t>(r)] += shard_range(elements, r, ranks).size();
    }
  }
};

class Replay {
 public:
  Replay(const Graph& graph, const Strategy& strategy, const Schedule& schedule, bool on_host)
      : graph_(graph),
        strategy_(strategy),
        schedule_(schedule),
        ranks_(strategy.mesh.data),
        own_(place_in_mesh(strategy.mesh, schedule.rank).data_index),
        on_host_(on_host),
        cut_gradients_(ranks_ > 1 && strategy.shard.gradients),
        readers_(edge_readers(graph, forward_blocks(schedule), strategy.recompute, true)),
        left_(schedule.actions.size()) {
    result_.between_steps = model_state_bytes(*graph.parameters, strategy, schedule.blocks);
    result_.between_steps[static_cast<size_t>(MemoryCategory::kWorkspace)] =
        scratch_bytes(graph, schedule.blocks, true);
    for (size_t c = 0; c < result_.between_steps.size(); ++c)
      ledger_.add(static_cast<MemoryCategory>(c), "state", result_.between_steps[c]);
    result_.peak_bytes = ledger_.peak();
  }

  EngineMemory run(const std::vector<ActionMoment>& order) {
    for (const ActionMoment& moment : order) {
      const Action& action = schedule_.actions[static_cast<size_t>(moment.action)];
      moment.end ? end(action, moment.action) : begin(action, moment.action);
      if (ledger_.peak() > result_.peak_bytes) {
        result_.peak_bytes = ledger_.peak();
        result_.peak_action = moment.action;
      }
      result_.curve.push_back(ledger_.by_category());
    }
    for (size_t c = 0; c < result_.peak.size(); ++c)
      result_.peak[c] = ledger_.peak(static_cast<MemoryCategory>(c));
    result_.at_peak = ledger_.at_peak();
    return std::move(result_);
  }

 private:
  using Key = std::pair<int, int>;  // edge or block, micro-batch
  struct Held {
    int64_t bytes = 0;
    int readers = 0;
  };

  void add(MemoryCategory category, int64_t bytes) { ledger_.add(category, "step", bytes); }
  void remove(MemoryCategory category, int64_t bytes) { ledger_.remove(category, "step", bytes); }
  // Held from the beginning of an action to its end.
  void hold(int action, MemoryCategory category, int64_t bytes) {
    add(category, bytes);
    left_[static_cast<size_t>(action)].emplace_back(category, bytes);
  }
  void let_go(int action) {
    for (const auto& [category, bytes] : left_[static_cast<size_t>(action)])
      remove(category, bytes);
    left_[static_cast<size_t>(action)].clear();
  }
  const Unit& unit(int u) const { return graph_.parameters->units[static_cast<size_t>(u)]; }
  int64_t full_bytes(int u, DType dtype) const {
    return padded_elements(unit(u).elements, ranks_) * static_cast<int64_t>(dtype_bytes(dtype));
  }

  void write_value(int e, int micro) {
    const auto [it, fresh] = values_.try_emplace({e, micro});
    if (!fresh) return;
    it->second = {graph_.edges[static_cast<size_t>(e)].type.bytes(),
                  readers_[static_cast<size_t>(e)]};
    add(MemoryCategory::kActivations, it->second.bytes);
  }
  void done_with_value(int e, int micro) {
    const auto it = values_.find({e, micro});
    if (it == values_.end() || --it->second.readers > 0) return;
    remove(MemoryCategory::kActivations, it->second.bytes);
    values_.erase(it);
  }
  void write_gradient(int e, int micro) {
    if (gradients_.insert({e, micro}).second)
      add(MemoryCategory::kActivations, graph_.edges[static_cast<size_t>(e)].type.bytes());
  }
  void free_gradient(int e, int micro) {
    if (gradients_.erase({e, micro}) > 0)
      remove(MemoryCategory::kActivations, graph_.edges[static_cast<size_t>(e)].type.bytes());
  }
  int64_t saved_bytes(int block) const {
    return graph_.blocks[static_cast<size_t>(block)].tape->layout().saved_bytes;
  }

  void load_batch(int micro) {
    if (!loaded_.insert(micro).second) return;
    for (size_t e = 0; e < graph_.edges.size(); ++e) {
      if (graph_.edges[e].producer < 0 && readers_[e] > 0) write_value(static_cast<int>(e), micro);
    }
  }

  void begin(const Action& action, int index) {
    const int micro = action.micro_batch;
    switch (action.kind) {
      case ActionKind::kForward: {
        load_batch(micro);
        const GraphBlock& block = graph_.blocks[static_cast<size_t>(action.block)];
        for (const int e : block.outputs) write_value(e, micro);
        if (strategy_.recompute || !block.tape->needs_backward()) {
          hold(index, MemoryCategory::kActivations, saved_bytes(action.block));
        } else {
          add(MemoryCategory::kActivations, saved_bytes(action.block));
        }
        return;
      }
      case ActionKind::kBackward:
        return begin_backward(action, index);
      case ActionKind::kReserve:
        if (action.of_reduction) return add(MemoryCategory::kCommunication, room_bytes(action));
        for (const int u : action.units)
          add(MemoryCategory::kGathered, full_bytes(u, strategy_.compute_dtype));
        return;
      case ActionKind::kPublish:
        if (action.units.size() > 1) {
          const BucketBytes bucket(*graph_.parameters, action.units, ranks_);
          hold(index,
               MemoryCategory::kCommunication,
               bucket.total * static_cast<int64_t>(dtype_bytes(strategy_.compute_dtype)));
        }
        return;
      case ActionKind::kReceive:
        if (action.lane == LaneId::kReceiveDown) return write_value(action.edge, micro);
        return hold(index,
                    MemoryCategory::kCommunication,
                    graph_.edges[static_cast<size_t>(action.edge)].type.bytes());
      case ActionKind::kGather:
      case ActionKind::kRelease:
      case ActionKind::kReduce:
      case ActionKind::kSend:
      case ActionKind::kNorm:
      case ActionKind::kUpdate:
        return;
    }
  }

  // What a reduction works in, beside the full gradients of stages 2 and 3.
  int64_t room_bytes(const Action& reduction) const {
    const DType dtype = strategy_.gradient_dtype;
    const auto element = static_cast<int64_t>(dtype_bytes(dtype));
    const BucketBytes bucket(*graph_.parameters, reduction.units, ranks_);
    const bool alone = reduction.units.size() == 1;
    const bool in_place =
        alone && strategy_.shard.optimizer && (!cut_gradients_ || reduction.first_micro);
    int64_t bytes = in_place ? 0 : bucket.part[static_cast<size_t>(own_)] * element;
    if (!alone) bytes += bucket.total * element;
    if (on_host_) bytes += reduce_scratch_bytes(bucket.part, own_, dtype);
    return bytes;
  }

  void begin_backward(const Action& action, int index) {
    const GraphBlock& block = graph_.blocks[static_cast<size_t>(action.block)];
    const int micro = action.micro_batch;
    for (const int e : block.outputs) {
      const Edge& edge = graph_.edges[static_cast<size_t>(e)];
      if (edge.loss_weight != 0 && edge.requires_grad) write_gradient(e, micro);
    }
    for (size_t port = 0; port < block.inputs.size(); ++port) {
      if (block.tape->inputs()[port].requires_grad) write_gradient(block.inputs[port], micro);
    }
    for (const ParameterUse use : graph_.parameters->uses[static_cast<size_t>(action.block)]) {
      if (!cut_gradients_ || unit(use.unit).frozen) continue;
      if (transient_.insert(use.unit).second)
        add(MemoryCategory::kCommunication, full_bytes(use.unit, strategy_.gradient_dtype));
    }
    if (strategy_.recompute) {
      hold(index, MemoryCategory::kActivations, saved_bytes(action.block));
    } else {  // kept since the forward, until this ends
      left_[static_cast<size_t>(index)].emplace_back(MemoryCategory::kActivations,
                                                     saved_bytes(action.block));
    }
  }

  void end(const Action& action, int index) {
    const int micro = action.micro_batch;
    switch (action.kind) {
      case ActionKind::kForward: {
        let_go(index);
        const GraphBlock& block = graph_.blocks[static_cast<size_t>(action.block)];
        for (const int e : block.inputs) done_with_value(e, micro);
        for (const int e : block.outputs) {
          if (readers_[static_cast<size_t>(e)] == 0) done_with_value(e, micro);
        }
        return;
      }
      case ActionKind::kBackward: {
        let_go(index);
        const GraphBlock& block = graph_.blocks[static_cast<size_t>(action.block)];
        for (size_t port = 0; port < block.outputs.size(); ++port) {
          free_gradient(block.outputs[port], micro);
          if (backward_keeps_output(*block.tape, static_cast<int>(port), strategy_.recompute))
            done_with_value(block.outputs[port], micro);
        }
        for (size_t port = 0; port < block.inputs.size(); ++port) {
          if (backward_keeps_input(*block.tape, static_cast<int>(port), strategy_.recompute))
            done_with_value(block.inputs[port], micro);
        }
        return;
      }
      case ActionKind::kRelease:
        if (action.of_reduction) remove(MemoryCategory::kCommunication, room_bytes(action));
        for (const int u : action.units) {
          if (!action.of_reduction) {
            remove(MemoryCategory::kGathered, full_bytes(u, strategy_.compute_dtype));
          } else if (transient_.erase(u) > 0) {
            remove(MemoryCategory::kCommunication, full_bytes(u, strategy_.gradient_dtype));
          }
        }
        return;
      case ActionKind::kSend:
        return action.lane == LaneId::kSendDown ? done_with_value(action.edge, micro)
                                                : free_gradient(action.edge, micro);
      case ActionKind::kReceive:
        if (action.lane == LaneId::kReceiveUp) write_gradient(action.edge, micro);
        return let_go(index);
      case ActionKind::kReserve:
      case ActionKind::kGather:
      case ActionKind::kReduce:
      case ActionKind::kPublish:
      case ActionKind::kNorm:
      case ActionKind::kUpdate:
        return let_go(index);
    }
  }

  const Graph& graph_;
  const Strategy& strategy_;
  const Schedule& schedule_;
  int ranks_, own_;
  bool on_host_, cut_gradients_;
  std::vector<int> readers_;                                           // by edge
  std::vector<std::vector<std::pair<MemoryCategory, int64_t>>> left_;  // by action
  std::map<Key, Held> values_;
  std::set<Key> gradients_;
  std::set<int> loaded_, transient_;  // micro-batches; units
  MemoryLedger ledger_;
  EngineMemory result_;
};

}  // namespace

std::vector<ActionMoment> prompt_order(const Schedule& schedule) {
  std::vector<ActionMoment> order;
  for (int i = 0; i < static_cast<int>(schedule.actions.size()); ++i) {
    order.push_back({i, false});
    order.push_back({i, true});
  }
  return order;
}

std::vector<ActionMoment> late_order(const Schedule& schedule) {
  std::array<std::vector<int>, kLanes> lanes;
  for (int i = 0; i < static_cast<int>(schedule.actions.size()); ++i)
    lanes[static_cast<size_t>(schedule.actions[static_cast<size_t>(i)].lane)].push_back(i);
  std::array<size_t, kLanes> next{};
  std::array<bool, kLanes> running{};
  std::vector<char> done(schedule.actions.size(), 0);
  std::vector<ActionMoment> order;
  const auto begin_ready = [&] {
    for (size_t l = 1; l < kLanes; ++l) {
      if (running[l] || next[l] == lanes[l].size()) continue;
      const int index = lanes[l][next[l]];
      const std::vector<int>& waits = schedule.actions[static_cast<size_t>(index)].waits;
      running[l] = std::all_of(
          waits.begin(), waits.end(), [&](int w) { return done[static_cast<size_t>(w)] != 0; });
      if (running[l]) order.push_back({index, false});
    }
  };
  // Ends what runs on a lane, and what runs there after it, up to action `index`. What these wait
  // for comes before them in the schedule, so it is done or can be finished likewise.
  const auto finish = [&](auto&& self, int index) -> void {
    const auto l = static_cast<size_t>(schedule.actions[static_cast<size_t>(index)].lane);
    while (done[static_cast<size_t>(index)] == 0) {
      const int front = lanes[l][next[l]];
      for (const int w : schedule.actions[static_cast<size_t>(front)].waits) self(self, w);
      if (done[static_cast<size_t>(front)] != 0) continue;
      if (!running[l]) order.push_back({front, false});
      order.push_back({front, true});
      done[static_cast<size_t>(front)] = 1;
      running[l] = false;
      ++next[l];
      begin_ready();
    }
  };
  begin_ready();
  for (const int index : lanes[static_cast<size_t>(LaneId::kCompute)]) finish(finish, index);
  for (int i = 0; i < static_cast<int>(schedule.actions.size()); ++i) finish(finish, i);
  return order;
}

EngineMemory engine_memory(const Graph& graph,
                           const Strategy& strategy,
                           const Schedule& schedule,
                           const std::vector<ActionMoment>& order,
                           bool on_host) {
  return Replay(graph, strategy, schedule, on_host).run(order);
}

std::string action_words(const Action& action, const Graph& graph) {
  std::string text = action_kind_name(action.kind);
  if (action.edge >= 0) {
    text += " of " + graph.edges[static_cast<size_t>(action.edge)].name;
  } else if (action.block >= 0) {
    text += " of " + graph.blocks[static_cast<size_t>(action.block)].name;
  }
  if (action.units.size() > 1) text += " and " + std::to_string(action.units.size() - 1) + " more";
  if (action.micro_batch >= 0) text += ", micro-batch " + std::to_string(action.micro_batch);
  return text;
}

}  // namespace vitrine
