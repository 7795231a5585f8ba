// Intervals from uses, and how early each may start.
#include "schedule/gather_plan.h"

#include <algorithm>
#include <map>

namespace vitrine {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

class Planner {
 public:
  Planner(const Graph& graph, const Strategy& strategy, const std::vector<ComputeOp>& order)
      : graph_(graph), strategy_(strategy), order_(order) {
    for (const ComputeOp& op : order) {
      needed_.push_back(units_read(graph, op.block, op.backward, strategy.recompute));
    }
  }

  GatherPlan plan(const std::vector<int>& blocks) {
    const auto uses = uses_by_unit();
    for (const Unit& unit : graph_.parameters->units) {
      if (unit.persistent && contains(blocks, unit.block)) {
        const bool small = std::all_of(
            unit.parameters.begin(), unit.parameters.end(), [&](const UnitParameter& parameter) {
              return parameter.elements <= strategy_.persistence_threshold;
            });
        skip(unit.name + (small ? ": persistent (each of its parameters has at most " +
                                      std::to_string(strategy_.persistence_threshold) + " elements)"
                                : ": persistent (named so, or small)"));
      }
    }
    for (const auto& [unit, positions] : uses) {
      for (const int at : positions) add_use(unit, at);
    }
    std::stable_sort(
        intervals().begin(),
        intervals().end(),
        [](const GatherInterval& a, const GatherInterval& b) { return a.first < b.first; });
    for (size_t i = 0; i < intervals().size(); ++i) place(i);
    return std::move(plan_);
  }

 private:
  std::vector<GatherInterval>& intervals() { return plan_.intervals; }
  const Unit& unit_of(int unit) const {
    return graph_.parameters->units[static_cast<size_t>(unit)];
  }
  bool sharded(int unit) const { return !unit_of(unit).persistent; }
  bool backward_at(int at) const { return order_[static_cast<size_t>(at)].backward; }

  void skip(const std::string& text) {
    auto& list = plan_.skipped;
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
  }

  std::map<int, std::vector<int>> uses_by_unit() {
    std::map<int, std::vector<int>> uses;  // unit -> positions
    for (size_t at = 0; at < order_.size(); ++at) {
      const ComputeOp& op = order_[at];
      for (const int unit : needed_[at]) {
        if (sharded(unit)) uses[unit].push_back(static_cast<int>(at));
      }
      if (!op.backward) continue;
      for (const int unit : units_read(graph_, op.block, false, strategy_.recompute)) {
        if (sharded(unit) && !contains(needed_[at], unit)) {
          skip(unit_of(unit).name + " in backward of " +
               graph_.blocks[static_cast<size_t>(op.block)].name + ": its values are not read");
        }
      }
    }
    return uses;
  }

  void add_use(int unit, int at) {
    const bool known = !intervals().empty() && intervals().back().unit == unit;
    if (!known ||
        reuse_distance(unit, intervals().back().last, at) > strategy_.max_reuse_distance) {
      intervals().push_back({unit, at, at, at});
      return;
    }
    GatherInterval& kept = intervals().back();
    if (backward_at(at) != backward_at(kept.last)) {
      skip(unit_of(unit).name + " in backward: kept from its forward");
    }
    kept.last = at;
  }

  // Elements of other sharded units used between two positions.
  int64_t reuse_distance(int unit, int from, int to) const {
    int64_t distance = 0;
    for (int at = from + 1; at < to; ++at) {
      for (const int other : needed_[static_cast<size_t>(at)]) {
        if (other != unit && sharded(other)) distance += unit_of(other).elements;
      }
      distance += 1;  // any block between ends a hold at distance 0
    }
    return distance;
  }

  // The earliest position from which prefetch and live limits allow interval i's gather.
  void place(size_t i) {
    GatherInterval& interval = intervals()[i];
    const auto elements = [&](size_t k) { return unit_of(intervals()[k].unit).elements; };
    int earliest = 0;
    for (size_t k = 0; k < i; ++k) {  // its last gathering must have been let go
      if (intervals()[k].unit == interval.unit)
        earliest = std::max(earliest, intervals()[k].last + 1);
    }
    // Gathers are issued in order of first use, so none may start before an earlier one.
    if (i > 0) earliest = std::max(earliest, intervals()[i - 1].start);
    int start = std::max(interval.first, earliest);
    while (strategy_.overlap && start > earliest) {
      // Starting one position earlier: what is then gathered but not yet used, and what is alive.
      // What is ahead of it in flight counts, not itself: a unit larger than the limit is fetched
      // ahead too, as by DeepSpeed.
      int64_t in_flight = 0, live = elements(i);
      for (size_t k = 0; k < i; ++k) {
        if (intervals()[k].first >= start - 1) in_flight += elements(k);
        if (intervals()[k].last >= start - 1) live += elements(k);
      }
      if (in_flight >= strategy_.prefetch_elements || live > strategy_.max_live_elements) break;
      --start;
    }
    interval.start = start;
  }

  const Graph& graph_;
  const Strategy& strategy_;
  const std::vector<ComputeOp>& order_;
  std::vector<std::vector<int>> needed_;  // by position
  GatherPlan plan_;
};

}  // namespace

std::vector<int> units_read(const Graph& graph, int block, bool backward, bool recompute) {
  std::vector<int> units;
  const auto b = static_cast<size_t>(block);
  const std::vector<ParameterUse>& uses = graph.parameters->uses[b];
  for (size_t i = 0; i < uses.size(); ++i) {
    const bool read =
        !backward || graph.blocks[b].tape->backward_reads_parameter(static_cast<int>(i), recompute);
    if (read && !contains(units, uses[i].unit)) units.push_back(uses[i].unit);
  }
  return units;
}

GatherPlan plan_gathers(const Graph& graph,
                        const Strategy& strategy,
                        const std::vector<int>& blocks,
                        const std::vector<ComputeOp>& order) {
  return Planner(graph, strategy, order).plan(blocks);
}

}  // namespace vitrine
