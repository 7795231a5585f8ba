// Rule: stages of a pipeline wait for each other: too few micro-batches, unbalanced stages, or a
// stage whose host is late. What the schedule has by itself is told from waiting.
#include <algorithm>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// Four micro-batches a stage or more keep the ideal bubble (p-1)/(v m+p-1) at or under a fifth.
constexpr double kIdealTooLarge = 0.2;
// A stage with a fifth more compute than the mean sets the pace of all.
constexpr double kUnbalanced = 1.2;
constexpr double kHostShare = 0.1;

std::vector<int32_t> ranks_of(const std::vector<const PipelineStage*>& stages) {
  std::vector<int32_t> ranks;
  for (const PipelineStage* stage : stages) {
    ranks.insert(ranks.end(), stage->ranks.begin(), stage->ranks.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Whether its host is late mostly because it loads data.
bool loads_data(const JobView& view, const PipelineStage& stage) {
  int64_t data = 0, all = 0;
  for (const RankView& rank : view.ranks) {
    if (std::find(stage.ranks.begin(), stage.ranks.end(), rank.rank) == stage.ranks.end()) continue;
    data += rank.of_pipeline[static_cast<size_t>(IdleCause::kDataLoading)];
    for (const int64_t ns : rank.of_pipeline) all += ns;
  }
  return data * 2 > all;
}

double part(int64_t ns, int64_t of) {
  return of > 0 ? static_cast<double>(ns) / static_cast<double>(of) : 0;
}

}  // namespace

void pipeline_bubble(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  if (!job.pipeline) {
    if (job.layout.pipeline > 1) {
      out.abstained.push_back(
          "pipeline_bubble: a pipeline is likely, but its stages were not measured");
    }
    return;
  }
  const PipelineFacts& pipe = *job.pipeline;
  if (pipe.by_stage.empty()) return;
  int64_t lost = 0, compute = 0, schedule = 0, waiting = 0, step = 0;
  int64_t stages = 0;  // whose ranks were read: of the others nothing is known
  const PipelineStage* heaviest = nullptr;
  std::vector<const PipelineStage*> host_bound;
  for (const PipelineStage& stage : pipe.by_stage) {
    if (stage.step_ns <= 0) continue;
    ++stages;
    lost += stage.bubble_ns + stage.host_bound_ns;
    compute += stage.compute_ns;
    schedule += stage.schedule_ns;
    waiting += stage.waiting_ns;
    step = std::max(step, stage.step_ns);
    if (heaviest == nullptr || stage.compute_ns > heaviest->compute_ns) heaviest = &stage;
    if (part(stage.host_bound_ns, stage.step_ns) >= kHostShare) host_bound.push_back(&stage);
  }
  if (stages == 0) {
    out.abstained.push_back("pipeline_bubble: of no stage was a step read");
    return;
  }
  const int64_t cost = lost / stages;
  if (cost <= 0) return;

  Finding finding;
  finding.rule = "pipeline_bubble";
  finding.confidence = 0.85;
  finding.cost_ns = cost;
  finding.share = part(cost, std::max(step, view.step_ns));
  const bool few = pipe.ideal_bubble > kIdealTooLarge;
  const double balance = part(heaviest->compute_ns * stages, compute);
  const bool unbalanced = balance >= kUnbalanced;
  const bool host = !host_bound.empty();

  std::vector<std::string> causes, titles;
  if (few) {
    titles.push_back("too few micro-batches");
    causes.push_back(format("%d micro-batches for %d stages: the schedule alone leaves %s idle",
                            pipe.micro_batches,
                            pipe.stages,
                            percent(pipe.ideal_bubble).c_str()));
    finding.fix.push_back(format(
        "at least %d micro-batches a step (four a stage): PyTorch n_microbatches of Schedule1F1B "
        "or ScheduleGPipe, DeepSpeed and Vitrine \"gradient_accumulation_steps\", Megatron-LM "
        "a larger --global-batch-size; or an interleaved schedule (ScheduleInterleaved1F1B)",
        4 * pipe.stages));
  }
  if (host) {
    std::vector<int32_t> numbers;
    for (const PipelineStage* stage : host_bound) numbers.push_back(stage->stage);
    const std::string name = (numbers.size() == 1 ? "stage " : "stages ") +
                             rank_list(numbers).substr(numbers.size() == 1 ? 5 : 6);
    titles.push_back(name + " host-bound");
    const bool data = loads_data(view, *host_bound.front());
    causes.push_back(
        format("the host of %s (%s) %s, %s a step, and the other stages "
               "wait in receive for it",
               name.c_str(),
               rank_list(ranks_of(host_bound)).c_str(),
               data ? "waits for its next batch" : "launches too slowly",
               format_ns(static_cast<double>(host_bound.front()->host_bound_ns)).c_str()));
    finding.ranks = ranks_of(host_bound);
    if (data) {
      finding.fix.push_back(
          "that stage's input first: DataLoader(num_workers=4 or more, pin_memory=True, "
          "prefetch_factor=4)");
    }
    finding.fix.push_back(
        "that stage's host first: larger micro-batches, torch.compile or CUDA graphs "
        "for the stage's module, fused optimizer; its own cores (numactl)");
  }
  if (unbalanced) {
    titles.push_back("unbalanced stages");
    causes.push_back(format("stage %d computes %s a step, %.2f times the mean",
                            heaviest->stage,
                            format_ns(static_cast<double>(heaviest->compute_ns)).c_str(),
                            balance));
    finding.fix.push_back(
        format("move layers away from stage %d; count the embedding and the output "
               "head as layers (DeepSpeed partition_method=\"parameters\", Megatron-LM "
               "--account-for-embedding-in-pipeline-split)",
               heaviest->stage));
  }
  if (causes.empty()) {
    titles.push_back(waiting > schedule ? "stages wait" : "as its schedule has it");
    causes.push_back(waiting > schedule
                         ? "stages are late for each other by more than the schedule's own bubble"
                         : "the bubble is the schedule's own");
    finding.fix.push_back(
        "more micro-batches, or an interleaved or zero-bubble schedule "
        "(ScheduleInterleaved1F1B, ScheduleZBVZeroBubble)");
    // Nothing but the price of the layout that was chosen.
    if (waiting <= schedule) finding.severity = Severity::kNote;
  }
  finding.title = "Pipeline bubble: " + join(titles, ", ");
  finding.cause = join(causes, "; ") + ".";
  finding.summary = format(
      "Pipeline of %d stages, %d micro-batches (%s): stages do not compute for %s a "
      "step on average; by schedule %s, by waiting for a late stage %s.",
      pipe.stages,
      pipe.micro_batches,
      pipe.order.c_str(),
      time_and_share(cost, finding.share).c_str(),
      format_ns(static_cast<double>(schedule / stages)).c_str(),
      format_ns(static_cast<double>(waiting / stages)).c_str());
  finding.evidence.push_back({format("ideal bubble (p-1)/(v m+p-1) = %.3f, measured %.3f",
                                     pipe.ideal_bubble,
                                     pipe.measured_bubble)});
  for (const PipelineStage& stage : pipe.by_stage) {
    if (stage.step_ns <= 0) {
      finding.evidence.push_back({format("stage %d: its ranks were not read", stage.stage)});
      continue;
    }
    Evidence evidence{
        format("stage %d (%s): compute %s, bubble %s (schedule %s, waiting %s), own host %s, "
               "transfer %s of a step of %s",
               stage.stage,
               rank_list(stage.ranks).c_str(),
               format_ns(static_cast<double>(stage.compute_ns)).c_str(),
               format_ns(static_cast<double>(stage.bubble_ns)).c_str(),
               format_ns(static_cast<double>(stage.schedule_ns)).c_str(),
               format_ns(static_cast<double>(stage.waiting_ns)).c_str(),
               format_ns(static_cast<double>(stage.host_bound_ns)).c_str(),
               format_ns(static_cast<double>(stage.transfer_ns)).c_str(),
               format_ns(static_cast<double>(stage.step_ns)).c_str()),
        stage.ranks.empty() ? -1 : stage.ranks.front()};
    // The stage's first whole step, for the reader to jump to.
    if (const RankView* rank = view.of_rank(evidence.rank);
        rank != nullptr && !rank->steps.empty()) {
      evidence.step = rank->steps.front()->step;
      evidence.begin_ns = rank->steps.front()->start_ns;
      evidence.end_ns = evidence.begin_ns + rank->steps.front()->duration_ns;
    }
    finding.evidence.push_back(std::move(evidence));
  }
  finding.gain = "part of " + time_and_share(cost, finding.share) +
                 " a step: waiting and host time can "
                 "go, the schedule's bubble shrinks as (p-1)/(v m+p-1), v chunks a stage";
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules
