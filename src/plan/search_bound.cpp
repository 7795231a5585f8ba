// The least that a step can take, stage by stage.
#include "plan/search_bound.h"

#include <algorithm>
#include <array>

namespace vitrine {
namespace {

double real(int64_t value) { return static_cast<double>(value); }

// Work of the stage that has most of it, a micro-batch, and what comes before and after it.
struct StageWork {
  TimeParts work;  // all of it
  double total = 0, recompute = 0;
  double before = 0, after = 0;  // forwards of earlier positions, their backwards
};

// Its step at least: all of its work, and where stages end together what the others do before its
// first and after its last micro-batch.
double bound_of(const StageWork& w, const ClusterStrategy& s) {
  const double all = real(s.accumulation()) * w.total;
  return stages_end_together(s) ? w.before + all + w.after : all;
}

StageWork heaviest_stage(const Planner::Blocks& blocks, const ClusterStrategy& s) {
  const int p = s.mesh.pipeline, chunks = pipeline_chunks(s);
  const bool v_shaped = s.pipeline == PipelineKind::kZbV && p > 1;
  const auto cut = cut_positions(*blocks.shard, p * chunks, s.balance_parameters);
  std::vector<std::array<double, 4>> kinds;
  for (const BlockCost& c : blocks.cost) {
    kinds.push_back({c.forward_ns(),
                     c.backward_input.total() + c.recompute.total(),
                     c.backward_weight.total(),
                     c.recompute.total()});
  }
  std::vector<StageWork> stages(static_cast<size_t>(p));
  double forwards = 0, backwards = 0;
  for (int position = 0; position < p * chunks; ++position) {
    const int row = position / p;
    const int stage = v_shaped && row % 2 == 1 ? p - 1 - position % p : position % p;
    StageWork& w = stages[static_cast<size_t>(stage)];
    if (row == 0) {
      w.before = forwards;
      w.after = backwards;
    }
    for (int b = cut[static_cast<size_t>(position)].first;
         b < cut[static_cast<size_t>(position)].second;
         ++b) {
      const auto& k = kinds[static_cast<size_t>(blocks.shard->blocks[static_cast<size_t>(b)])];
      w.total += k[0] + k[1] + k[2];
      w.recompute += k[3];
      forwards += k[0];
      backwards += k[1] + k[2];
    }
  }
  return *std::max_element(stages.begin(), stages.end(), [&](const auto& a, const auto& b) {
    return bound_of(a, s) < bound_of(b, s);
  });
}

}  // namespace

double least_step_ns(Planner& planner, const ClusterStrategy& strategy) {
  return bound_of(heaviest_stage(planner.blocks(strategy), strategy), strategy);
}

std::string slower_because(Planner& planner,
                           const ClusterStrategy& s,
                           const ClusterStrategy& best,
                           double best_ns) {
  const auto parts = [&](const ClusterStrategy& of) {
    const StageWork w = heaviest_stage(planner.blocks(of), of);
    const double m = real(of.accumulation());
    double compute = 0;
    const Planner::Blocks& blocks = planner.blocks(of);
    TimeParts sum;
    for (const int kind : blocks.shard->blocks) {
      const BlockCost& c = blocks.cost[static_cast<size_t>(kind)];
      sum += c.forward;
      sum += c.backward_input;
      sum += c.backward_weight;
      sum += c.recompute;
    }
    const double share = m / of.mesh.pipeline;
    for (const double c : sum.compute) compute += c * share;
    std::vector<std::pair<const char*, double>> out = {
        {"recomputation", w.recompute * m},
        {"products and passes too small for the card", compute - w.recompute * m},
        {"launches that the host cannot keep up with", sum.launch * share},
        {of.mesh.tensor > planner.cluster().gpus_per_node ? "tensor groups that cross nodes"
                                                          : "tensor communication",
         sum.tensor * share},
        {"context communication", sum.context * share},
        {"expert communication", sum.expert * share},
        {"stages of unequal work", std::max(0.0, m * w.total - sum.total() * share)},
        {"pipeline bubble", w.before + w.after}};
    return out;
  };
  const auto own = parts(s), other = parts(best);
  const char* reason = "ZeRO's communication, optimizer or offload";
  double most = 0.02 * best_ns;
  for (size_t i = 0; i < own.size(); ++i) {
    const double more = own[i].second - other[i].second;
    if (more > most) {
      most = more;
      reason = own[i].first;
    }
  }
  return std::string("slower: ") + reason;
}

}  // namespace vitrine
