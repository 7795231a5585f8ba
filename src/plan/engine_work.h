// What an action of the engine consists of, as work on processors and meetings with other ranks.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "plan/measured_costs.h"
#include "schedule/action.h"

namespace vitrine {

// Ranks that meet: (group, sequence number of the call on it).
struct Meeting {
  std::tuple<int, int, int> group{};  // kind and lane, stage or lower rank, higher rank
  int sequence = 0, ranks = 0;
  auto operator<=>(const Meeting&) const = default;
};

// A stretch of an action on `cores` processors; with ranks > 0 it begins when all are there and
// they run it together.
struct WorkPhase {
  double ns = 0, cores = 1;
  Meeting meeting;
};

// Phases of the actions of one rank's step, in the schedule's order.
class EngineWork {
 public:
  // All by reference.
  EngineWork(const Graph& graph,
             const Strategy& strategy,
             const Schedule& schedule,
             const MeasuredCosts& costs);

  const std::vector<WorkPhase>& phases(int action) const {
    return phases_[static_cast<size_t>(action)];
  }
  double recompute_ns(int action) const { return recompute_[static_cast<size_t>(action)]; }

 private:
  struct BlockWork {
    double forward = 0, recompute = 0, backward = 0;
  };
  BlockWork block_work(const Tape& tape) const;
  void add_action(const Action& action);
  void add_gather(const Action& action, std::vector<WorkPhase>& phases);
  void add_reduce(const Action& action, std::vector<WorkPhase>& phases);
  void add_norm(std::vector<WorkPhase>& phases);
  double update_ns(const Unit& unit) const;
  Meeting meet_data(LaneId lane);

  const Graph& graph_;
  const Strategy& strategy_;
  const MeasuredCosts& costs_;
  MeshPlace place_;
  std::vector<BlockWork> blocks_;  // by block of the graph; others' are empty
  std::vector<bool> loaded_;       // by micro-batch
  std::map<std::tuple<int, int, int>, int> calls_;
  std::vector<std::vector<WorkPhase>> phases_;
  std::vector<double> recompute_;
  std::vector<int> local_units_;
};

}  // namespace vitrine
