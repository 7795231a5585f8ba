// Median and median deviation of step times, then the parts of those that stand out.
#include "analysis/outliers.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "analysis/statistics.h"
#include "analysis/step_parts.h"
#include "core/format.h"

namespace vitrine {
namespace {

constexpr size_t kFewestSteps = 4;
constexpr double kLeastExcess = 0.10, kDeviations = 5, kNormal = 1.4826;

std::string ns_text(int64_t ns) { return format_ns(static_cast<double>(ns)); }

// In the collectives of a step: exposed wait of this rank, by the rank that came last.
using WaitsByStep = std::map<int32_t, std::map<int32_t, int64_t>>;

// As `ranks`.
std::vector<WaitsByStep> waits_of(const std::vector<RankFacts>& ranks,
                                  const std::vector<MatchedCollective>& collectives) {
  std::vector<WaitsByStep> result(ranks.size());
  for (const MatchedCollective& collective : collectives) {
    for (const auto& member : collective.members) {
      if (member.exposed_wait_ns <= 0) continue;
      const auto rank = static_cast<size_t>(member.rank_index);
      const auto use = static_cast<size_t>(member.use);
      const auto latest = static_cast<size_t>(collective.members.back().rank_index);
      result[rank][ranks[rank].collectives[use].step][ranks[latest].rank] += member.exposed_wait_ns;
    }
  }
  return result;
}

class RankOutliers {
 public:
  RankOutliers(const RankFacts& rank, int32_t rank_index) : rank_(rank), rank_index_(rank_index) {
    std::vector<int64_t> durations;
    for (const StepFacts& step : rank.steps) durations.push_back(step.duration_ns);
    middle_ = median(durations);
    const auto spread = static_cast<double>(median_deviation(durations));
    const auto middle = static_cast<double>(middle_);
    limit_ = middle + std::max(kLeastExcess * middle,
                               kDeviations * std::max(kNormal * spread, 0.01 * middle));
    std::vector<const StepFacts*> usual;
    std::vector<int64_t> kernels;
    for (const StepFacts& step : rank.steps) {
      if (static_cast<double>(step.duration_ns) > limit_) continue;
      usual.push_back(&step);
      kernels.push_back(step.kernels);
    }
    if (usual.size() == rank.steps.size()) return;
    usual_parts_ = median_parts(usual);
    usual_kernels_ = median(kernels);
  }

  void add_to(std::vector<OutlierStep>& out, const WaitsByStep& waits) const {
    for (size_t i = 0; i < rank_.steps.size(); ++i) {
      if (static_cast<double>(rank_.steps[i].duration_ns) <= limit_) continue;
      OutlierStep outlier;
      outlier.rank_index = rank_index_;
      outlier.step_index = static_cast<int32_t>(i);
      outlier.excess_ns = rank_.steps[i].duration_ns - middle_;
      explain(i, waits, outlier);
      out.push_back(std::move(outlier));
    }
  }

 private:
  void explain(size_t index, const WaitsByStep& waits, OutlierStep& outlier) const {
    const StepFacts& step = rank_.steps[index];
    const std::vector<StepPart> mine = step_parts(step);
    const std::vector<StepPart>& others = usual_parts_;
    size_t best = 0;
    for (size_t i = 1; i < mine.size(); ++i) {
      // The allocator's calls are a part of the host's time, and explain it.
      const int64_t excess = mine[i].ns - others[i].ns;
      const int64_t so_far = mine[best].ns - others[best].ns;
      const bool explains = std::string_view(mine[i].cause) == "allocator" && 2 * excess > so_far;
      if (excess > so_far || (explains && std::string_view(mine[best].cause) == "host")) best = i;
    }
    const int64_t excess = mine[best].ns - others[best].ns;
    const bool found = 3 * excess >= outlier.excess_ns;
    outlier.cause = found ? mine[best].cause : "unknown";
    outlier.evidence = format("%s against %s, the median of this rank's steps",
                              ns_text(step.duration_ns).c_str(),
                              ns_text(middle_).c_str());
    if (found) {
      outlier.evidence += format("; %s %s against %s",
                                 mine[best].words,
                                 ns_text(mine[best].ns).c_str(),
                                 ns_text(others[best].ns).c_str());
    }
    if (outlier.cause == "allocator") {
      outlier.evidence += format(" in %lld calls", static_cast<long long>(step.allocator_calls));
    }
    if (outlier.cause == "compute") {
      outlier.evidence += step.kernels == usual_kernels_
                              ? ", by the same number of kernels: a lower clock or another job"
                              : ", by another number of kernels: other work";
    }
    if (outlier.cause == "collective") add_waits(step.step, waits, outlier);
    if (index == 0 && outlier.cause != "allocator") outlier.cause = "first step";
  }

  static void add_waits(int32_t step, const WaitsByStep& waits, OutlierStep& outlier) {
    const auto found = waits.find(step);
    if (found == waits.end()) return;
    const auto most = std::max_element(
        found->second.begin(), found->second.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    outlier.evidence +=
        format(", %s of it waiting for rank %d", ns_text(most->second).c_str(), most->first);
  }

  const RankFacts& rank_;
  const int32_t rank_index_;
  int64_t middle_ = 0;
  double limit_ = 0;
  std::vector<StepPart> usual_parts_;  // of the steps that do not stand out
  int64_t usual_kernels_ = 0;
};

}  // namespace

std::vector<OutlierStep> find_outliers(const std::vector<RankFacts>& ranks,
                                       const std::vector<MatchedCollective>& collectives) {
  std::vector<OutlierStep> result;
  const std::vector<WaitsByStep> waits = waits_of(ranks, collectives);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].steps.size() < kFewestSteps) continue;
    RankOutliers(ranks[i], static_cast<int32_t>(i)).add_to(result, waits[i]);
  }
  return result;
}

}  // namespace vitrine
