// What a straggler has more of than the others.
#include <algorithm>
#include <map>
#include <string_view>

#include "analysis/statistics.h"
#include "analysis/step_parts.h"
#include "analysis/straggler.h"
#include "core/format.h"

namespace vitrine {
namespace {

std::vector<const StepFacts*> all_steps(const RankFacts& rank) {
  std::vector<const StepFacts*> steps;
  for (const StepFacts& step : rank.steps) steps.push_back(&step);
  return steps;
}

struct Excess {
  std::string name;
  int64_t own_count = 0, other_count = 0;
  int64_t ns = 0;  // a step
};

int64_t steps_of(const RankFacts& rank) {
  return std::max<int64_t>(1, static_cast<int64_t>(rank.steps.size()));
}

// Kernels that cost this rank more a step than the median of the others, most first.
std::vector<Excess> kernel_excess(const std::vector<RankFacts>& ranks, const RankFacts& own) {
  struct Samples {
    std::vector<int64_t> ns, count;
  };
  std::map<std::string_view, Samples> others;
  int64_t other_ranks = 0;
  for (const RankFacts& rank : ranks) {
    if (rank.rank == own.rank) continue;
    ++other_ranks;
    for (const KernelRow& kernel : rank.kernels) {
      Samples& samples = others[kernel.name];
      samples.ns.push_back(kernel.total_ns / steps_of(rank));
      samples.count.push_back(kernel.count / steps_of(rank));
    }
  }
  std::vector<Excess> result;
  for (const KernelRow& kernel : own.kernels) {
    if (kernel.communication || kernel.copy) continue;
    Samples samples = others[kernel.name];
    samples.ns.resize(static_cast<size_t>(other_ranks), 0);
    samples.count.resize(static_cast<size_t>(other_ranks), 0);
    result.push_back({kernel.name,
                      kernel.count / steps_of(own),
                      median(samples.count),
                      kernel.total_ns / steps_of(own) - median(samples.ns)});
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  return result;
}

// Whether a key of RankFacts::idle_by_what ("cause: what") speaks of this reason.
bool speaks_of(const std::string& reason, const std::string& what) {
  const auto begins = [&](IdleCause cause) { return what.rfind(idle_cause_name(cause), 0) == 0; };
  if (reason == "host") {
    return begins(IdleCause::kHostLaunch) || begins(IdleCause::kHostSync) ||
           begins(IdleCause::kRegion);
  }
  return reason == "input" && begins(IdleCause::kDataLoading);
}

// What kept the host, by the largest difference to the other ranks.
std::vector<Excess> host_excess(const std::vector<RankFacts>& ranks,
                                const RankFacts& own,
                                const std::string& reason) {
  std::vector<Excess> result;
  for (const auto& [what, ns] : own.idle_by_what) {
    if (!speaks_of(reason, what)) continue;
    std::vector<int64_t> others;
    for (const RankFacts& rank : ranks) {
      if (rank.rank == own.rank) continue;
      const auto found = rank.idle_by_what.find(what);
      others.push_back(found == rank.idle_by_what.end() ? 0 : found->second / steps_of(rank));
    }
    result.push_back({what, 0, 0, ns / steps_of(own) - median(std::move(others))});
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.ns > b.ns; });
  return result;
}

}  // namespace

void explain_straggler(const std::vector<RankFacts>& ranks, Straggler& straggler) {
  const auto own = std::find_if(ranks.begin(), ranks.end(), [&](const RankFacts& rank) {
    return rank.rank == straggler.rank;
  });
  straggler.reason = "unknown";
  if (own == ranks.end() || own->steps.empty()) {
    straggler.evidence = "No steps were recorded to compare.";
    return;
  }
  const std::vector<StepPart> mine = median_parts(all_steps(*own));
  std::vector<std::vector<int64_t>> others(mine.size());
  for (const RankFacts& rank : ranks) {
    if (rank.rank == own->rank) continue;
    const std::vector<StepPart> parts = median_parts(all_steps(rank));
    for (size_t i = 0; i < parts.size(); ++i) others[i].push_back(parts[i].ns);
  }
  size_t best = mine.size();
  int64_t most = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    // The one that is waited for has less exposed communication, never more.
    if (others[i].empty() || std::string_view(mine[i].cause) == "collective") continue;
    const int64_t excess = mine[i].ns - median(others[i]);
    if (excess <= most) continue;
    most = excess;
    best = i;
  }
  if (best == mine.size() || 3 * most < straggler.cost_ns) {
    straggler.evidence =
        "No part of its steps is as much longer than the other ranks' as it is "
        "waited for.";
    return;
  }
  straggler.reason = mine[best].cause;
  straggler.cost_ns = std::min(straggler.cost_ns, most);
  straggler.evidence = format("%s %s a step against %s, the median of the other ranks",
                              mine[best].words,
                              format_ns(static_cast<double>(mine[best].ns)).c_str(),
                              format_ns(static_cast<double>(median(others[best]))).c_str());
  const bool compute = straggler.reason == "compute";
  for (const Excess& excess :
       compute ? kernel_excess(ranks, *own) : host_excess(ranks, *own, straggler.reason)) {
    if (straggler.more.size() == 3 || 10 * excess.ns < straggler.cost_ns) break;
    std::string text =
        excess.name + ": " + format_ns(static_cast<double>(excess.ns)) + " more a step";
    if (compute && excess.own_count != excess.other_count) {
      text += format(", %lld calls against %lld",
                     static_cast<long long>(excess.own_count),
                     static_cast<long long>(excess.other_count));
    }
    straggler.more.push_back(std::move(text));
  }
}

}  // namespace vitrine
