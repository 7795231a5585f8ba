// Work of the engine's actions from measured costs.
#include "plan/engine_work.h"

#include <algorithm>

namespace vitrine {
namespace {

constexpr int kDataGroup = 0, kControlGroup = 1, kPairGroup = 2;

// Pieces of a bucket of units over the data ranks.
struct Pieces {
  int64_t largest = 0, own = 0, total = 0;
  bool equal = true;

  Pieces(const ParameterTable& table, const std::vector<int>& units, int ranks, int rank) {
    int64_t first = 0;
    for (int r = 0; r < ranks; ++r) {
      int64_t part = 0;
      for (const int u : units)
        part += shard_range(table.units[static_cast<size_t>(u)].elements, r, ranks).size();
      if (r == 0) first = part;
      if (r == rank) own = part;
      equal = equal && part == first;
      largest = std::max(largest, part);
      total += part;
    }
  }
};

}  // namespace

EngineWork::EngineWork(const Graph& graph,
                       const Strategy& strategy,
                       const Schedule& schedule,
                       const MeasuredCosts& costs)
    : graph_(graph),
      strategy_(strategy),
      costs_(costs),
      place_(place_in_mesh(strategy.mesh, schedule.rank)),
      blocks_(graph.blocks.size()),
      loaded_(static_cast<size_t>(strategy.accumulation), false) {
  std::map<const Tape*, BlockWork> known;  // blocks of one kind share a tape
  for (const int b : schedule.blocks) {
    const Tape& tape = *graph.blocks[static_cast<size_t>(b)].tape;
    const auto [it, fresh] = known.try_emplace(&tape);
    if (fresh) it->second = block_work(tape);
    blocks_[static_cast<size_t>(b)] = it->second;
  }
  for (size_t u = 0; u < graph.parameters->units.size(); ++u) {
    const Unit& unit = graph.parameters->units[u];
    if (!unit.frozen && std::count(schedule.blocks.begin(), schedule.blocks.end(), unit.block) > 0)
      local_units_.push_back(static_cast<int>(u));
  }
  for (const Action& action : schedule.actions) add_action(action);
}

EngineWork::BlockWork EngineWork::block_work(const Tape& tape) const {
  BlockWork work;
  for (size_t n = 0; n < tape.nodes().size(); ++n) {
    const TapeNode& node = tape.nodes()[n];
    const std::vector<TensorType> in = tape.input_types(node);
    const double forward = costs_.operation_ns(node, in, false);
    work.forward += forward;
    if (tape.runs_again(n)) work.recompute += forward;
    if (node.needs_backward) work.backward += costs_.operation_ns(node, in, true);
  }
  return work;
}

void EngineWork::add_action(const Action& action) {
  phases_.emplace_back();
  recompute_.push_back(0);
  std::vector<WorkPhase>& phases = phases_.back();
  const double threads = costs_.threads();
  switch (action.kind) {
    case ActionKind::kForward: {
      const auto micro = static_cast<size_t>(action.micro_batch);
      if (!loaded_[micro]) {
        loaded_[micro] = true;
        double bytes = 0;
        for (const Edge& edge : graph_.edges)
          bytes += edge.producer < 0 ? static_cast<double>(edge.type.bytes()) : 0;
        phases.push_back({costs_.pass_ns("copy", bytes), 1, {}});
      }
      phases.push_back({blocks_[static_cast<size_t>(action.block)].forward, threads, {}});
      return;
    }
    case ActionKind::kBackward: {
      const BlockWork& work = blocks_[static_cast<size_t>(action.block)];
      recompute_.back() = strategy_.recompute ? work.recompute : 0;
      phases.push_back({recompute_.back() + work.backward, threads, {}});
      return;
    }
    case ActionKind::kGather:
    case ActionKind::kPublish:
      return add_gather(action, phases);
    case ActionKind::kReduce:
      return add_reduce(action, phases);
    case ActionKind::kSend:
    case ActionKind::kReceive: {
      const bool down = action.lane == LaneId::kSendDown || action.lane == LaneId::kReceiveDown;
      const auto [low, high] = std::minmax(place_.rank, action.peer);
      const std::tuple<int, int, int> group{kPairGroup + (down ? 1 : 0), low, high};
      const auto bytes =
          static_cast<double>(graph_.edges[static_cast<size_t>(action.edge)].type.bytes());
      const MeasuredCosts::Transfer transfer = costs_.collective("send", 2, bytes);
      phases.push_back({transfer.ns, transfer.cores, {group, calls_[group]++, 2}});
      return;
    }
    case ActionKind::kNorm:
      return add_norm(phases);
    case ActionKind::kUpdate:
      phases.push_back(
          {update_ns(graph_.parameters->units[static_cast<size_t>(action.units[0])]), threads, {}});
      return;
    case ActionKind::kReserve:
    case ActionKind::kRelease:
      return;
  }
}

Meeting EngineWork::meet_data(LaneId lane) {
  const std::tuple<int, int, int> group{kDataGroup, place_.stage, static_cast<int>(lane)};
  return {group, calls_[group]++, strategy_.mesh.data};
}

void EngineWork::add_gather(const Action& action, std::vector<WorkPhase>& phases) {
  const int ranks = strategy_.mesh.data;
  const Pieces pieces(*graph_.parameters, action.units, ranks, place_.data_index);
  const auto element = static_cast<double>(dtype_bytes(strategy_.compute_dtype));
  const bool bucket = action.units.size() > 1;
  if (bucket)
    phases.push_back({costs_.pass_ns("copy", static_cast<double>(pieces.own) * element), 1, {}});
  const MeasuredCosts::Transfer transfer =
      costs_.collective(pieces.equal ? "all_gather" : "all_gather_v",
                        ranks,
                        static_cast<double>(pieces.largest) * element);
  phases.push_back({transfer.ns, transfer.cores, meet_data(action.lane)});
  if (bucket) {
    const auto others = static_cast<double>(pieces.total - pieces.own);
    phases.push_back({costs_.pass_ns("copy", others * element), 1, {}});
  }
}

void EngineWork::add_reduce(const Action& action, std::vector<WorkPhase>& phases) {
  const int ranks = strategy_.mesh.data;
  const Pieces pieces(*graph_.parameters, action.units, ranks, place_.data_index);
  const auto element = static_cast<double>(dtype_bytes(strategy_.gradient_dtype));
  const double whole = static_cast<double>(pieces.total) * element;
  const bool bucket = action.units.size() > 1;
  if (bucket) phases.push_back({costs_.pass_ns("copy", whole), 1, {}});
  const double piece = static_cast<double>(pieces.largest) * element;
  MeasuredCosts::Transfer transfer =
      costs_.collective(pieces.equal ? "reduce_scatter" : "reduce_scatter_v", ranks, piece);
  if (!strategy_.shard.optimizer) {  // stage 0: the sums go back to everyone
    const MeasuredCosts::Transfer back =
        costs_.collective(pieces.equal ? "all_gather" : "all_gather_v", ranks, piece);
    transfer = {transfer.ns + back.ns,
                (transfer.ns * transfer.cores + back.ns * back.cores) / (transfer.ns + back.ns)};
  }
  phases.push_back({transfer.ns, transfer.cores, meet_data(action.lane)});
  // Into the shard, or back out of the bucket.
  const double after =
      strategy_.shard.optimizer ? static_cast<double>(pieces.own) * element : (bucket ? whole : 0);
  phases.push_back({costs_.pass_ns("copy", after), 1, {}});
}

void EngineWork::add_norm(std::vector<WorkPhase>& phases) {
  double squares = 0;
  for (const int u : local_units_) {
    const int64_t elements = graph_.parameters->units[static_cast<size_t>(u)].elements;
    squares += costs_.pass_ns(
        "squares",
        static_cast<double>(shard_range(elements, place_.data_index, strategy_.mesh.data).size()));
  }
  phases.push_back({squares, static_cast<double>(costs_.threads()), {}});
  const int world = strategy_.mesh.world();
  if (world == 1) return;
  const MeasuredCosts::Transfer transfer =
      costs_.collective("all_gather", world, static_cast<double>(kControlBytes));
  const std::tuple<int, int, int> group{kControlGroup, 0, 0};
  phases.push_back({transfer.ns, transfer.cores, {group, calls_[group]++, world}});
}

double EngineWork::update_ns(const Unit& unit) const {
  const bool cut = strategy_.mesh.data > 1 && strategy_.shard.optimizer;
  const ShardRange range = cut ? shard_range(unit.elements, place_.data_index, strategy_.mesh.data)
                               : ShardRange{0, unit.elements, unit.elements};
  double ns = 0;
  for (const UnitParameter& p : unit.parameters) {
    const int64_t count =
        std::min(range.end, p.offset + p.elements) - std::max(range.begin, p.offset);
    if (count > 0) ns += costs_.pass_ns("adamw", static_cast<double>(count));
  }
  return ns;
}

}  // namespace vitrine
