// Sums each stage's steps from its messages' waits and its idleness by cause.
#include "analysis/pipeline.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>

#include "analysis/statistics.h"

namespace vitrine {
namespace {

// Waits of one rank's messages: use -> exposed wait.
using UseWaits = std::map<int32_t, int64_t>;

std::vector<UseWaits> message_waits(const std::vector<RankFacts>& ranks,
                                    const std::vector<MatchedCollective>& collectives) {
  std::vector<UseWaits> result(ranks.size());
  for (const MatchedCollective& collective : collectives) {
    for (const auto& member : collective.members) {
      result[static_cast<size_t>(member.rank_index)][member.use] = member.exposed_wait_ns;
    }
  }
  return result;
}

// Idleness that the rank's own host causes.
bool host_causes(IdleCause cause) {
  switch (cause) {
    case IdleCause::kHostLaunch:
    case IdleCause::kHostSync:
    case IdleCause::kDataLoading:
    case IdleCause::kRegion:
    case IdleCause::kProfiler:
      return true;
    default:
      return false;
  }
}

int64_t host_idle(const IdleByCause& idle) {
  int64_t sum = 0;
  for (int cause = 0; cause < kIdleCauses; ++cause) {
    if (host_causes(static_cast<IdleCause>(cause))) sum += idle[static_cast<size_t>(cause)];
  }
  return sum;
}

// part of `whole`, scaled to `target`; nothing of nothing.
int64_t scaled(int64_t part, int64_t whole, int64_t target) {
  if (whole <= 0) return 0;
  return static_cast<int64_t>(static_cast<double>(part) / static_cast<double>(whole) *
                              static_cast<double>(target));
}

int64_t micro_batches_of(const StageMap& map) {
  std::vector<int64_t> counts;
  for (const auto& messages : map.messages) {
    std::map<int32_t, int64_t> sends, receives;
    for (const StageMessage& message : messages) {
      if (message.forward) ++(message.send ? sends : receives)[message.step];
    }
    // A stage of several chunks also sends on to the first one; one of its links has all of them.
    for (const auto& [step, count] : sends.size() >= receives.size() ? sends : receives) {
      counts.push_back(count);
    }
  }
  const int64_t found = median(counts);
  return std::max<int64_t>(1, (found + map.chunks / 2) / map.chunks);
}

class Measurement {
 public:
  Measurement(const std::vector<RankFacts>& ranks,
              const std::vector<MatchedCollective>& collectives,
              const StageMap& map)
      : ranks_(ranks), map_(map), waits_(message_waits(ranks, collectives)) {
    for (const auto& messages : map.messages) by_step_.push_back(messages_by_step(messages));
  }

  PipelineFacts run() {
    facts_.stages = map_.stages;
    facts_.micro_batches = static_cast<int32_t>(micro_batches_of(map_));
    const double p = facts_.stages, m = facts_.micro_batches, v = map_.chunks;
    facts_.ideal_bubble = (p - 1) / (v * m + p - 1);
    facts_.order = order();
    for (int32_t stage = 0; stage < map_.stages; ++stage) add_stage(stage);
    split_bubbles();
    return std::move(facts_);
  }

  // In the last stage a backward follows each forward; nothing known: false.
  bool alternating() const {
    std::vector<int64_t> turns;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (map_.stage_of[i] != map_.stages - 1) continue;
      for (const StepFacts& step : ranks_[i].steps) turns.push_back(turns_of(ranks_[i], step));
    }
    return median(turns) > std::max(1, map_.chunks);
  }

 private:
  // Changes from forward to backward among the pieces that are a good part of a micro-batch.
  int64_t turns_of(const RankFacts& rank, const StepFacts& step) const {
    const int64_t m = std::max(1, facts_.micro_batches * map_.chunks);
    std::array<int64_t, 2> busy{};
    int64_t turns = 0;
    bool forward = false;
    auto at = first_work(rank, step.device_begin_ns);
    for (; at != rank.work.end() && at->begin_ns < step.device_end_ns; ++at) {
      const WorkPiece& piece = *at;
      if (piece.phase != Phase::kForward && piece.phase != Phase::kBackward) continue;
      const auto phase = static_cast<size_t>(piece.phase);
      const bool is_forward = piece.phase == Phase::kForward;
      // A direction counts once half a micro-batch of it was seen in a row.
      if (is_forward == forward) {
        busy[phase] += piece.busy_ns;
        busy[1 - phase] = 0;
      } else {
        busy[phase] += piece.busy_ns;
        if (busy[phase] * 2 < step.phase_ns[phase] / m) continue;
        if (forward) ++turns;
        forward = is_forward;
        busy[1 - phase] = 0;
      }
    }
    return turns;
  }

  std::string order() {
    if (map_.chunks > 1) return "interleaved";
    const bool exchanges =
        std::any_of(map_.messages.begin(), map_.messages.end(), [](const auto& messages) {
          return std::any_of(messages.begin(), messages.end(), [](const StageMessage& message) {
            return message.exchange;
          });
        });
    bool last_read = false;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const auto backward = static_cast<size_t>(Phase::kBackward);
      last_read =
          last_read || (map_.stage_of[i] == map_.stages - 1 && ranks_[i].phase_ns[backward] > 0);
    }
    if (facts_.micro_batches < 2) {
      facts_.notes.push_back("One micro-batch a step: every order is the same.");
      return "unknown";
    }
    if (exchanges || alternating()) return "1f1b";
    return last_read ? "gpipe" : "unknown";
  }

  void add_stage(int32_t number) {
    PipelineStage stage;
    stage.stage = number;
    for (const auto& [rank, of] : map_.stage) {
      if (of == number) stage.ranks.push_back(rank);
    }
    std::vector<PipelineStage> samples;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (map_.stage_of[i] != number) continue;
      for (const StepFacts& step : ranks_[i].steps) {
        if (step.device_end_ns > step.device_begin_ns) samples.push_back(step_of(i, step));
      }
    }
    if (samples.empty()) {
      facts_.notes.push_back("Stage " + std::to_string(number) +
                             ": no step of its ranks was read, its times are not known.");
    } else {
      // The step of median length as a whole, so that its parts add up.
      const auto middle = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
      std::nth_element(samples.begin(), middle, samples.end(), [](const auto& a, const auto& b) {
        return a.step_ns < b.step_ns;
      });
      std::vector<int32_t> stage_ranks = std::move(stage.ranks);
      stage = *middle;
      stage.stage = number;
      stage.ranks = std::move(stage_ranks);
    }
    facts_.by_stage.push_back(std::move(stage));
  }

  PipelineStage step_of(size_t rank_index, const StepFacts& step) const {
    const RankFacts& rank = ranks_[rank_index];
    int64_t wait = 0, transfer = 0;
    std::set<int32_t> seen;  // an exchange is two messages of one kernel
    const auto messages = by_step_[rank_index].find(step.step);
    const std::vector<StageMessage> none;
    for (const StageMessage& message :
         messages == by_step_[rank_index].end() ? none : messages->second) {
      if (!seen.insert(message.use).second) continue;
      const CollectiveUse& use = rank.collectives[static_cast<size_t>(message.use)];
      const auto known = waits_[rank_index].find(message.use);
      const int64_t waited = known == waits_[rank_index].end() ? 0 : known->second;
      wait += waited;
      transfer += std::max<int64_t>(0, use.exposed_ns - waited);
    }
    // Causes are known by the host's window; the shares are taken over.
    const int64_t idle = step.device.idle_ns;
    const int64_t host = scaled(host_idle(step.idle_by_cause), step.time.idle_ns, idle);
    const int64_t m = facts_.micro_batches;
    PipelineStage result;
    result.step_ns = step.device.span_ns;
    result.compute_ns = step.device.compute_ns;
    result.bubble_ns = wait + idle - host;
    result.host_bound_ns = host;
    result.transfer_ns = transfer;
    result.other_ns = result.step_ns - result.compute_ns - result.bubble_ns - host - transfer;
    result.forward_ns = step.phase_ns[static_cast<size_t>(Phase::kForward)] / m;
    result.backward_ns = step.phase_ns[static_cast<size_t>(Phase::kBackward)] / m;
    return result;
  }

  void split_bubbles() {
    int64_t micro_batch = 0, known = 0;
    for (const PipelineStage& stage : facts_.by_stage) {
      micro_batch += stage.forward_ns + stage.backward_ns;
      known += stage.step_ns > 0 ? 1 : 0;
    }
    if (known == 0) return;
    const int64_t by_schedule = (facts_.stages - 1) * (micro_batch / known) / map_.chunks;
    double share = 0;
    for (PipelineStage& stage : facts_.by_stage) {
      stage.schedule_ns = std::min(stage.bubble_ns, by_schedule);
      stage.waiting_ns = stage.bubble_ns - stage.schedule_ns;
      if (stage.step_ns > 0) {
        share += static_cast<double>(stage.bubble_ns) / static_cast<double>(stage.step_ns);
      }
    }
    facts_.measured_bubble = share / static_cast<double>(known);
  }

  const std::vector<RankFacts>& ranks_;
  const StageMap& map_;
  const std::vector<UseWaits> waits_;
  std::vector<std::map<int32_t, std::vector<StageMessage>>> by_step_;  // by rank index
  PipelineFacts facts_;
};

}  // namespace

std::optional<PipelineFacts> measure_pipeline(const std::vector<RankFacts>& ranks,
                                              const std::vector<RankClock>& clocks,
                                              const std::vector<MatchedCollective>& collectives) {
  const std::optional<StageMap> map = find_stages(ranks);
  if (!map) return std::nullopt;
  Measurement measurement(ranks, collectives, *map);
  PipelineFacts facts = measurement.run();
  facts.cells = pipeline_cells(ranks, clocks, *map, facts.order == "1f1b");
  return facts;
}

}  // namespace vitrine
