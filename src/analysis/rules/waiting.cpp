// Waiting between ranks, followed to the late rank's own reason.
#include "analysis/rules/waiting.h"

#include <algorithm>
#include <map>

#include "core/format.h"

namespace vitrine {

OwnReason own_reason(const JobView& view, int32_t rank) {
  const RankView* own = view.of_rank(rank);
  OwnReason best;
  if (own == nullptr || view.ranks.size() < 2) return best;
  struct Measure {
    const char* kind;
    const char* words;
    std::function<int64_t(const RankView&)> value;
  };
  const auto idle = [](IdleCause cause) {
    return [cause](const RankView& r) { return r.idle_for(cause); };
  };
  const Measure measures[] = {
      {"host", "idle because its host launches late", idle(IdleCause::kHostLaunch)},
      {"host", "idle after its host waited for the device", idle(IdleCause::kHostSync)},
      {"region", "idle while its host is in a named region", idle(IdleCause::kRegion)},
      {"input", "idle for its next batch", [](const RankView& r) { return r.starved_ns(); }},
      {"compute", "in compute", [](const RankView& r) { return r.compute_ns; }},
      {"copy", "in exposed copies", [](const RankView& r) { return r.exposed_copy_ns; }}};
  for (const Measure& measure : measures) {
    std::vector<int64_t> others;
    for (const RankView& other : view.ranks) {
      if (other.rank != rank) others.push_back(measure.value(other));
    }
    const int64_t usual_ns = median(others), own_ns = measure.value(*own);
    if (own_ns - usual_ns <= best.excess_ns) continue;
    best.kind = measure.kind;
    best.excess_ns = own_ns - usual_ns;
    best.text = format("rank %d spends %s %s %s, the others %s",
                       rank,
                       format_ns(static_cast<double>(own_ns)).c_str(),
                       view.per(),
                       measure.words,
                       format_ns(static_cast<double>(usual_ns)).c_str());
  }
  return best;
}

std::vector<std::pair<int32_t, int64_t>> waited_for(const JobFacts& job) {
  std::map<int32_t, int64_t> sums;
  for (const RankWaits& waits : job.waits) {
    for (const auto& [rank, ns] : waits.waited_for) sums[rank] += ns;
  }
  std::vector<std::pair<int32_t, int64_t>> out(sums.begin(), sums.end());
  std::sort(
      out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

void add_longest_waits(const JobView& view, size_t most, std::vector<Evidence>& out) {
  struct Wait {
    int64_t ns;
    const MatchedCollective* matched;
    const MatchedCollective::Member* member;
  };
  std::vector<Wait> waits;
  for (const MatchedCollective& matched : view.job->collectives) {
    if (is_point_to_point(matched.name)) continue;
    for (const auto& member : matched.members) {
      if (member.exposed_wait_ns > 0) waits.push_back({member.exposed_wait_ns, &matched, &member});
    }
  }
  const auto shown = static_cast<ptrdiff_t>(std::min(most, waits.size()));
  std::partial_sort(waits.begin(), waits.begin() + shown, waits.end(), [](auto& a, auto& b) {
    return a.ns > b.ns;
  });
  for (ptrdiff_t i = 0; i < shown; ++i) {
    const Wait& wait = waits[static_cast<size_t>(i)];
    const auto index = static_cast<size_t>(wait.member->rank_index);
    const auto last = static_cast<size_t>(wait.matched->members.back().rank_index);
    if (index >= view.job->ranks.size() || last >= view.job->ranks.size()) continue;
    const RankFacts& rank = view.job->ranks[index];
    const auto use = static_cast<size_t>(wait.member->use);
    if (use >= rank.collectives.size()) continue;
    // The rank's own clock, as places are.
    const CollectiveUse& own = rank.collectives[use];
    out.push_back({format("rank %d waits %s in %s for rank %d",
                          rank.rank,
                          format_ns(static_cast<double>(wait.ns)).c_str(),
                          wait.matched->name.c_str(),
                          view.job->ranks[last].rank),
                   rank.rank,
                   own.step,
                   own.start_ns,
                   own.start_ns + own.duration_ns});
  }
}

std::vector<std::string> fixes_for(const std::string& kind) {
  if (kind == "compute") {
    return {
        "give every rank the same work: equal sequence lengths or token counts for each rank "
        "(bucketed or packed batches), balanced experts",
        "no extra work on one rank in the step: evaluation, logging of histograms, images",
        "same kernels but slower: nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE on that card"};
  }
  if (kind == "host") {
    return {
        "bind each rank to cores of its card's NUMA node (torchrun under numactl, or "
        "--numa-binding=node); OMP_NUM_THREADS for its share of the cores",
        "look for other work on that rank's cores: data workers, logging and checkpoints of rank "
        "0, "
        "other jobs; gc.freeze() and gc.disable() with gc.collect() every N steps",
        "launch less: torch.compile, CUDA graphs, fused optimizers"};
  }
  if (kind == "input") {
    return {"more DataLoader workers on that rank, or its share of the data on faster storage",
            "shards of equal size and cost for every rank"};
  }
  if (kind == "copy") {
    return {
        "pinned memory and non_blocking copies on that rank; look at its PCIe link "
        "(nvidia-smi -q -d PCI: current against maximum)"};
  }
  if (kind == "allocator") {
    return {
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and no torch.cuda.empty_cache() in the "
        "step: the device allocator is called only while the cache grows",
        "batches of equal shape on that rank, so that freed blocks fit again"};
  }
  if (kind == "profiler") {
    return {
        "profile that rank like the others: the same activities, without with_stack and "
        "profile_memory; compare step times without a profiler before changing anything"};
  }
  return {"profile that rank with CPU activities to see what its host does before the collective"};
}

int64_t starvation_seen_as_wait(const JobView& view) {
  int64_t sum = 0;
  for (const RankView& rank : view.ranks) {
    // Its host was loading as well, while its device waited in a collective for a rank that loads.
    sum += std::min(rank.wait_ns, std::max<int64_t>(0, rank.data_host_ns - rank.starved_ns()));
  }
  return view.ranks.empty() ? 0 : sum / static_cast<int64_t>(view.ranks.size());
}

}  // namespace vitrine
