// Measures a job: matches its ranks' collectives, then asks what they tell.
#include <algorithm>
#include <set>
#include <utility>

#include "analysis/bandwidth.h"
#include "analysis/clocks.h"
#include "analysis/critical_path.h"
#include "analysis/job_facts.h"
#include "analysis/layout.h"
#include "analysis/match_collectives.h"
#include "analysis/outliers.h"
#include "analysis/pipeline.h"
#include "analysis/straggler.h"
#include "analysis/waits.h"

namespace vitrine {
namespace {

void sort_ranks(JobFacts& job, std::vector<RankFacts> ranks) {
  std::stable_sort(ranks.begin(), ranks.end(), [](const RankFacts& a, const RankFacts& b) {
    return a.rank < b.rank;
  });
  std::set<int32_t> sizes;  // as the traces state them
  for (RankFacts& rank : ranks) {
    if (!job.ranks.empty() && job.ranks.back().rank == rank.rank) {
      job.warnings.push_back("Rank " + std::to_string(rank.rank) + " was read from " +
                             job.ranks.back().source + "; " + rank.source +
                             " says it is the same rank and is left out.");
      continue;
    }
    const auto known = rank.info.find("world_size.known");
    if (known != rank.info.end() && known->second == "yes") sizes.insert(rank.world_size);
    job.world_size = std::max({job.world_size, rank.world_size, rank.rank + 1});
    job.ranks.push_back(std::move(rank));
  }
  if (sizes.size() > 1) {
    job.warnings.push_back("The traces speak of jobs of different sizes (" +
                           std::to_string(*sizes.begin()) + " to " +
                           std::to_string(*sizes.rbegin()) +
                           " ranks): these are hardly one job, and what is said across ranks is "
                           "not to be trusted. Give the traces of one job.");
  }
  const auto read = static_cast<int32_t>(job.ranks.size());
  if (read > 0 && sizes.empty() && job.world_size > read) {
    job.warnings.push_back(
        "No trace states how many ranks the job has: " + std::to_string(job.world_size) +
        " is a guess from the ranks' numbers and groups.");
  } else if (read > 0 && read < job.world_size) {
    job.warnings.push_back("Traces of " + std::to_string(read) + " of " +
                           std::to_string(job.world_size) +
                           " ranks were read: waits for the others can't be told from transfer.");
  }
}

void match(JobFacts& job) {
  const std::vector<int64_t> offsets = anchor_offsets(job.ranks);
  const bool same_clock = anchors_agree(job.ranks, offsets);
  if (!same_clock) {
    job.warnings.push_back(
        "The ranks' clocks lie more than an hour apart: their times are compared by their common "
        "collectives alone.");
  }
  job.collectives = match_collectives(job.ranks, offsets, same_clock, job.world_size, job.warnings);
  job.clocks = estimate_clocks(job.ranks, offsets, same_clock, job.collectives);
  apply_clocks(offsets, job.clocks, job.collectives);
  tell_waits(job.ranks, job.collectives);
  fill_bandwidths(job.collectives);
  job.collective_kinds = collective_kinds(job.ranks, job.clocks, job.collectives);
  job.waits = sum_waits(job.ranks, job.collectives);
  finish_paths(job.ranks, job.collectives);
}

}  // namespace

JobFacts measure_job(std::vector<RankFacts> ranks,
                     std::vector<Topology> topologies,
                     std::vector<NcclFacts> nccl) {
  JobFacts job;
  job.topologies = std::move(topologies);
  job.nccl = std::move(nccl);
  sort_ranks(job, std::move(ranks));
  if (job.ranks.empty()) return job;
  match(job);
  job.pipeline = measure_pipeline(job.ranks, job.clocks, job.collectives);
  job.layout = infer_layout(
      job.ranks, job.world_size, job.collectives, job.pipeline ? job.pipeline->stages : 1);
  job.straggler = find_stragglers(job.ranks, job.clocks, job.collectives);
  job.outliers = find_outliers(job.ranks, job.collectives);
  return job;
}

}  // namespace vitrine
