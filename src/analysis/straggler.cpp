// Counts who is waited for, and tests whether chance would do as much.
#include "analysis/straggler.h"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/blame.h"
#include "analysis/statistics.h"
#include "core/format.h"

namespace vitrine {
namespace {

constexpr double kSignificant = 0.01;
constexpr double kLeastCost = 0.01;  // of the step
constexpr int64_t kLeastWait_ns = 20'000;
constexpr int64_t kFewest = 5;        // waits below which nothing is tested
constexpr int64_t kEnoughSteps = 10;  // fewer: their collectives are tested

int64_t median_step(const std::vector<RankFacts>& ranks) {
  std::vector<int64_t> durations;
  for (const RankFacts& rank : ranks) {
    for (const StepFacts& step : rank.steps) durations.push_back(step.duration_ns);
    if (rank.steps.empty()) durations.push_back(rank.end_ns - rank.begin_ns);
  }
  return median(std::move(durations));
}

class Search {
 public:
  Search(const std::vector<RankFacts>& ranks,
         const std::vector<RankClock>& clocks,
         const std::vector<MatchedCollective>& collectives)
      : ranks_(ranks), collectives_(collectives), step_ns_(median_step(ranks)) {
    noticeable_ns_ = std::max(kLeastWait_ns, step_ns_ / 1000);
    for (const RankClock& clock : clocks) {
      noticeable_ns_ = std::max(noticeable_ns_, clock.uncertainty_ns);
    }
  }

  StragglerFacts run() {
    if (ranks_.size() < 2) return untested("Only one rank was read: nobody to compare it with.");
    for (const Blame& blame : follow_waits(ranks_.size(), collectives_)) add(blame);
    if (waits_ < kFewest) {
      return untested(std::to_string(waits_) +
                      " collectives with a noticeable wait: too few to tell a straggler from "
                      "chance.");
    }
    StragglerFacts facts;
    facts.tested = true;
    for (size_t i = 0; i < ranks_.size(); ++i) test(static_cast<int32_t>(i), facts);
    std::sort(facts.stragglers.begin(), facts.stragglers.end(), [](const auto& a, const auto& b) {
      return a.cost_ns > b.cost_ns;
    });
    for (Straggler& straggler : facts.stragglers) explain_straggler(ranks_, straggler);
    if (facts.stragglers.empty()) facts.note = none_note();
    return facts;
  }

 private:
  std::string none_note() const {
    std::string note =
        "No rank is waited for more often than chance would have it, at a cost worth "
        "a finding.";
    std::map<int32_t, int64_t> counts;
    for (const int32_t blamed : blamed_) ++counts[blamed];
    const auto most =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        });
    if (most != counts.end()) {
      note += format(" Rank %d was waited for most often, in %lld of %lld collectives.",
                     ranks_[static_cast<size_t>(most->first)].rank,
                     static_cast<long long>(most->second),
                     static_cast<long long>(waits_));
    }
    return note;
  }

  static StragglerFacts untested(std::string note) {
    StragglerFacts facts;
    facts.note = std::move(note);
    return facts;
  }

  void add(const Blame& blame) {
    if (blame.message) return;
    const MatchedCollective& collective = collectives_[static_cast<size_t>(blame.collective)];
    steps_.insert(collective.step);
    for (const Blame::Part& part : blame.parts) {
      cost_[collective.step][part.blamed] += part.exposed_ns;
    }
    if (blame.longest_wait_ns < noticeable_ns_ || blame.most < 0) return;
    ++waits_;
    blamed_.push_back(blame.most);
    smallest_ = std::min(smallest_, collective.members.size());
  }

  // What the average other rank waited for it in this step.
  int64_t cost_in(int32_t step, int32_t rank) const {
    const auto found = cost_.find(step);
    if (found == cost_.end()) return 0;
    const auto of_rank = found->second.find(rank);
    if (of_rank == found->second.end()) return 0;
    return of_rank->second / static_cast<int64_t>(ranks_.size() - 1);
  }

  // Lateness lasts: a host that was slow once is slow in the next collective too. With
  // autocorrelation r, n waits say as much as n (1 - r) / (1 + r) independent ones.
  double by_waits(int32_t rank) const {
    const auto n = static_cast<double>(blamed_.size());
    double hits = 0;
    for (const int32_t blamed : blamed_) hits += blamed == rank ? 1 : 0;
    const double mean = hits / n;
    double together = 0;
    for (size_t i = 1; i < blamed_.size(); ++i) {
      together += ((blamed_[i] == rank ? 1 : 0) - mean) * ((blamed_[i - 1] == rank ? 1 : 0) - mean);
    }
    const double variance = mean * (1 - mean) * n;
    const double r = variance > 0 ? std::clamp(together / variance, 0.0, 0.99) : 0;
    const double share = (1 - r) / (1 + r);
    return binomial_tail(static_cast<int64_t>(n * share),
                         static_cast<int64_t>(hits * share),
                         1 / static_cast<double>(smallest_));
  }

  void test(int32_t rank, StragglerFacts& facts) const {
    Straggler straggler;
    straggler.rank = ranks_[static_cast<size_t>(rank)].rank;
    std::vector<int64_t> costs;
    for (const int32_t step : steps_) {
      const int64_t own = cost_in(step, rank);
      bool most = own > 0;
      for (size_t other = 0; other < ranks_.size(); ++other) {
        most = most && (static_cast<int32_t>(other) == rank ||
                        own > cost_in(step, static_cast<int32_t>(other)));
      }
      costs.push_back(own);
      straggler.steps += most ? 1 : 0;
    }
    straggler.of_steps = static_cast<int64_t>(steps_.size());
    straggler.cost_ns = median(costs);
    const auto ranks = static_cast<double>(ranks_.size());
    const double p = straggler.of_steps >= kEnoughSteps
                         ? binomial_tail(straggler.of_steps, straggler.steps, 1 / ranks)
                         : by_waits(rank);
    straggler.p_value = std::min(1.0, ranks * p);
    const bool often = 2 * straggler.steps > straggler.of_steps;
    const bool costly =
        static_cast<double>(straggler.cost_ns) >= kLeastCost * static_cast<double>(step_ns_);
    if (straggler.p_value < kSignificant && often && costly) facts.stragglers.push_back(straggler);
  }

  const std::vector<RankFacts>& ranks_;
  const std::vector<MatchedCollective>& collectives_;
  const int64_t step_ns_;
  int64_t noticeable_ns_ = 0;
  int64_t waits_ = 0;
  size_t smallest_ = SIZE_MAX;
  std::vector<int32_t> blamed_;  // of each noticeable wait, in order
  std::set<int32_t> steps_;
  std::map<int32_t, std::map<int32_t, int64_t>> cost_;  // step -> rank index -> summed exposed ns
};

}  // namespace

StragglerFacts find_stragglers(const std::vector<RankFacts>& ranks,
                               const std::vector<RankClock>& clocks,
                               const std::vector<MatchedCollective>& collectives) {
  return Search(ranks, clocks, collectives).run();
}

}  // namespace vitrine
