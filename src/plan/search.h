// All strategies of a job on a cluster: which fit, which are fastest, why the others are not.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/predict.h"

namespace vitrine {

// What is searched. Fields that are set are held; the others take every value that divides.
struct SearchSpace {
  // Batch, sequence, precision, bytes and overlaps of every candidate; mesh and the fields below
  // are overwritten.
  ClusterStrategy base;
  std::optional<int> tensor, pipeline, context, expert, zero_stage, interleave;
  std::optional<int64_t> micro_batch, shard_group;
  std::optional<Recompute> recompute;
  std::optional<PipelineKind> schedule;
  bool offload = true;      // where a layout does not fit without
  int64_t most_micro = 32;  // samples
};

struct Candidate {
  ClusterStrategy strategy;
  double memory_bytes = 0;  // of the fullest card
  double least_ns = 0;      // no step is shorter: work and communication that cannot be hidden
  double step_ns = 0;       // 0: not simulated
};

// Why a group of strategies is not among the best.
struct Loss {
  std::string reason;
  size_t count = 0;
  Candidate nearest;   // of them, the one that comes nearest
  std::string detail;  // "needs 91.2 GiB of 80.0", "step 12.3 s against 9.8 s"
};

struct SearchResult {
  size_t considered = 0;          // whose memory was computed
  size_t fit = 0;                 // of those
  size_t simulated = 0;           // whose time was
  std::vector<Candidate> best;    // by step time, then memory; at most `top`
  std::vector<Candidate> pareto;  // each faster than all that need less memory; fastest first
  std::vector<Loss> losses;       // most frequent first
  double seconds = 0;
};

// Times within this factor of the best are worth a place on the Pareto list.
constexpr double kParetoReach = 4;

// Memory of every candidate first; of those that fit the time, in the order of a lower bound, until
// no bound is below the worst of the best and off the Pareto list: nothing is left out that could
// be on either list.
//
// Taken for granted, since nothing is gained by the other choice: norms and residuals split over
// tensor ranks; 1F1B instead of GPipe; no offload where a layout fits without.
//
// Throws ConfigError where no strategy divides the job, with the reason of the nearest.
SearchResult search_strategies(Planner& planner, const SearchSpace& space, size_t top = 10);

}  // namespace vitrine
