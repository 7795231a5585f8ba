// Medians over a rank's steps, exposed collectives shared out, and words for figures.
#include "analysis/rules/job_view.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "analysis/compare.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine {

int32_t step_of(const RankView& rank, const CollectiveUse& use) {
  // Steps are in order of start, and their numbers rise with it.
  const auto& steps = rank.steps;
  if (use.step >= 0) {
    const auto at = std::lower_bound(
        steps.begin(), steps.end(), use.step, [](auto* s, int32_t step) { return s->step < step; });
    return at != steps.end() && (*at)->step == use.step ? use.step : -1;
  }
  const int64_t middle = use.start_ns + use.duration_ns / 2;
  const auto after = std::upper_bound(
      steps.begin(), steps.end(), middle, [](int64_t t, auto* s) { return t < s->start_ns; });
  if (after == steps.begin()) return -1;
  const StepFacts& step = **(after - 1);
  return middle < step.start_ns + step.duration_ns ? step.step : -1;
}

namespace {

// As pipeline.cpp sums them into PipelineStage::host_bound_ns.
constexpr IdleCause kHostCauses[] = {IdleCause::kHostLaunch,
                                     IdleCause::kHostSync,
                                     IdleCause::kDataLoading,
                                     IdleCause::kRegion,
                                     IdleCause::kProfiler};

// Steps far shorter than the longest are cut by the end of the recording, not steps.
std::vector<const StepFacts*> judged_steps(const RankFacts& rank) {
  int64_t longest = 0;
  for (const StepFacts& step : rank.steps) longest = std::max(longest, step.duration_ns);
  std::vector<const StepFacts*> out;
  for (const StepFacts& step : rank.steps) {
    if (step.duration_ns > 0 && step.duration_ns * 20 >= longest) out.push_back(&step);
  }
  return out;
}

RankView view_rank(const RankFacts& facts, size_t index, bool whole) {
  RankView out;
  out.index = index;
  out.rank = facts.rank;
  out.facts = &facts;
  if (!whole) out.steps = judged_steps(facts);
  const auto of = [&](const std::function<int64_t(const StepFacts&)>& step, int64_t window) {
    return usual(out, step, window);
  };
  const Breakdown& all = facts.total;
  out.step_ns = of([](const StepFacts& s) { return s.duration_ns; }, all.span_ns);
  out.compute_ns = of([](const StepFacts& s) { return s.time.compute_ns; }, all.compute_ns);
  out.communication_ns =
      of([](const StepFacts& s) { return s.time.communication_ns; }, all.communication_ns);
  out.overlap_ns = of([](const StepFacts& s) { return s.time.overlap_ns; }, all.overlap_ns);
  out.exposed_communication_ns =
      of([](const StepFacts& s) { return s.time.exposed_communication_ns; },
         all.exposed_communication_ns);
  out.exposed_copy_ns =
      of([](const StepFacts& s) { return s.time.exposed_copy_ns; }, all.exposed_copy_ns);
  out.idle_ns = of([](const StepFacts& s) { return s.time.idle_ns; }, all.idle_ns);
  int64_t data_ns = 0;
  for (const StepFacts& step : facts.steps) data_ns += step.data_ns;
  out.data_host_ns = of([](const StepFacts& s) { return s.data_ns; }, data_ns);
  for (size_t cause = 0; cause < out.idle.size(); ++cause) {
    out.idle[cause] = of([cause](const StepFacts& s) { return s.idle_by_cause[cause]; },
                         facts.idle_by_cause[cause]);
  }
  return out;
}

// Exposed time of each collective, lessened where several are exposed at the same moment.
void share_exposed(RankView& rank) {
  const auto& uses = rank.facts->collectives;
  std::map<int32_t, int64_t> sums, limits;
  for (const CollectiveUse& use : uses) sums[step_of(rank, use)] += use.exposed_ns;
  if (rank.steps.empty()) limits[-1] = rank.facts->total.exposed_communication_ns;
  for (const StepFacts* step : rank.steps) {
    limits[step->step] =
        std::max(step->device.exposed_communication_ns, step->time.exposed_communication_ns);
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    const int32_t key = step_of(rank, uses[i]);
    const auto limit = limits.find(key);
    double part = 1;
    if (limit != limits.end() && limit->second > 0 && limit->second < sums[key]) {
      part = static_cast<double>(limit->second) / static_cast<double>(sums[key]);
    }
    const auto lessened = [part](int64_t ns) {
      return static_cast<int64_t>(static_cast<double>(ns) * part);
    };
    rank.use_exposed_ns.push_back(lessened(uses[i].exposed_ns));
    if (rank.use_wait_ns[i] > 0) rank.use_wait_ns[i] = lessened(rank.use_wait_ns[i]);
  }
}

// pipeline_bubble charges what a stage's own host costs; the causes share it by their idle time.
void share_with_pipeline(const JobFacts& job, JobView& view) {
  if (!job.pipeline) return;
  for (const PipelineStage& stage : job.pipeline->by_stage) {
    if (stage.step_ns <= 0 || stage.host_bound_ns <= 0) continue;
    for (RankView& rank : view.ranks) {
      if (std::find(stage.ranks.begin(), stage.ranks.end(), rank.rank) == stage.ranks.end()) {
        continue;
      }
      int64_t sum = 0;
      for (const IdleCause cause : kHostCauses) sum += rank.idle_for(cause);
      if (sum <= 0) continue;
      const double part =
          std::min(1.0, static_cast<double>(stage.host_bound_ns) / static_cast<double>(sum));
      for (const IdleCause cause : kHostCauses) {
        rank.of_pipeline[static_cast<size_t>(cause)] =
            static_cast<int64_t>(part * static_cast<double>(rank.idle_for(cause)));
      }
    }
  }
}

struct Exposed {
  int64_t wait = 0, transfer = 0, unmatched = 0;
};

// Exposed time in collectives by step, told apart where the other ranks' side was seen.
void view_collectives(const JobFacts& job, JobView& view) {
  std::vector<std::vector<int64_t>> waits(job.ranks.size());
  for (size_t i = 0; i < waits.size(); ++i) waits[i].assign(job.ranks[i].collectives.size(), -1);
  for (const MatchedCollective& matched : job.collectives) {
    if (matched.members.size() < 2) continue;
    for (const MatchedCollective::Member& member : matched.members) {
      const auto rank = static_cast<size_t>(member.rank_index);
      const auto use = static_cast<size_t>(member.use);
      if (rank >= waits.size() || use >= waits[rank].size()) continue;
      waits[rank][use] = std::clamp<int64_t>(
          member.exposed_wait_ns, 0, job.ranks[rank].collectives[use].exposed_ns);
    }
  }
  for (RankView& rank : view.ranks) {
    rank.use_wait_ns = std::move(waits[rank.index]);
    share_exposed(rank);
    // Kernels that send and receive at once are an exchange between all (all-to-all), except in a
    // pipeline, whose rule owns the time between its stages.
    for (size_t i = 0; job.pipeline && i < rank.use_exposed_ns.size(); ++i) {
      if (rank.facts->collectives[i].name != "send_receive") continue;
      rank.use_exposed_ns[i] = 0;
      rank.use_wait_ns[i] = std::min<int64_t>(rank.use_wait_ns[i], 0);
    }
    std::map<int32_t, Exposed> sums;
    Exposed whole;
    const auto& uses = rank.facts->collectives;
    for (size_t i = 0; i < uses.size(); ++i) {
      if (is_point_to_point(uses[i].name)) continue;
      const int64_t wait = std::max<int64_t>(rank.use_wait_ns[i], 0);
      for (Exposed* sum : {&sums[step_of(rank, uses[i])], &whole}) {
        (rank.use_wait_ns[i] < 0 ? sum->unmatched : sum->transfer) += rank.use_exposed_ns[i] - wait;
        sum->wait += wait;
      }
    }
    const auto of = [&](int64_t Exposed::*part) {
      return usual(
          rank, [&](const StepFacts& s) { return sums[s.step].*part; }, whole.*part);
    };
    rank.wait_ns = of(&Exposed::wait);
    rank.transfer_ns = of(&Exposed::transfer);
    rank.unmatched_ns = of(&Exposed::unmatched);
  }
}

}  // namespace

double JobView::share(int64_t ns) const {
  return step_ns > 0 ? static_cast<double>(ns) / static_cast<double>(step_ns) : 0;
}

const RankView* JobView::of_rank(int32_t rank) const {
  for (const RankView& view : ranks) {
    if (view.rank == rank) return &view;
  }
  return nullptr;
}

JobView view_job(const JobFacts& job, bool whole) {
  JobView view;
  view.job = &job;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    if (job.ranks[i].device_work) view.ranks.push_back(view_rank(job.ranks[i], i, whole));
  }
  view_collectives(job, view);
  tell_traffic(view);
  share_with_pipeline(job, view);
  view.has_steps = !view.ranks.empty();
  for (const RankView& rank : view.ranks) {
    view.step_ns = std::max(view.step_ns, rank.step_ns);
    view.has_steps = view.has_steps && !rank.steps.empty();
    view.trains = view.trains || rank.facts->phase_ns[static_cast<size_t>(Phase::kBackward)] > 0 ||
                  rank.facts->phase_ns[static_cast<size_t>(Phase::kOptimizer)] > 0;
  }
  return view;
}

int64_t common_part(const JobView& view, const std::function<int64_t(const RankView&)>& value) {
  std::vector<int64_t> values;
  for (const RankView& rank : view.ranks) values.push_back(value(rank));
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

int64_t usual(const RankView& rank,
              const std::function<int64_t(const StepFacts&)>& of_step,
              int64_t of_window) {
  if (rank.steps.empty()) return of_window;
  std::vector<int64_t> values;
  for (const StepFacts* step : rank.steps) values.push_back(of_step(*step));
  return median(std::move(values));
}

bool is_point_to_point(const std::string& collective) {
  return collective == "send" || collective == "receive" || collective == "recv";
}

std::string group_role(const JobFacts& job, const std::string& group_name) {
  for (const LayoutFacts::Group& group : job.layout.groups) {
    if (group.name == group_name) return group.role;
  }
  return "unknown";
}

void add_gaps(const JobView& view, IdleCause cause, size_t most, std::vector<Evidence>& out) {
  for (const RankView& rank : view.ranks) {
    size_t added = 0;
    for (const Gap& gap : rank.facts->gaps) {
      if (gap.cause != cause) continue;
      if (added++ == most) break;
      std::string text = format("rank %d: idle for %s",
                                rank.rank,
                                format_ns(static_cast<double>(gap.duration_ns)).c_str());
      // A gap may have more than one cause; only this one's part is in the finding.
      if (gap.cause_ns > 0 && gap.cause_ns < gap.duration_ns - gap.duration_ns / 100) {
        text += ", " + format_ns(static_cast<double>(gap.cause_ns)) + " of it for this";
      }
      if (!gap.what.empty()) text += ", the host in " + gap.what;
      out.push_back({text, rank.rank, gap.step, gap.begin_ns, gap.begin_ns + gap.duration_ns});
    }
  }
}

std::vector<std::pair<std::string, int64_t>> idle_whats(const RankFacts& rank, IdleCause cause) {
  const std::string head = std::string(idle_cause_name(cause)) + ": ";
  std::vector<std::pair<std::string, int64_t>> out;
  for (const auto& [what, ns] : rank.idle_by_what) {
    if (what.starts_with(head) && what.size() > head.size()) {
      out.emplace_back(what.substr(head.size()), ns);
    }
  }
  std::sort(
      out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string short_kernel_name(const std::string& name) {
  constexpr size_t kLongest = 100;
  if (name.size() <= kLongest) return name;
  const std::string base = kernel_base_name(name);
  if (base.size() <= kLongest) return base;
  size_t end = kLongest;
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (end > 0 && in_word(base[end - 1]) && in_word(base[end])) --end;
  return base.substr(0, end > 0 ? end : kLongest) + "...";
}

std::string sized_name(const CollectiveUse& use) {
  const std::string name = use.name.empty() ? "communication" : use.name;
  return use.bytes > 0 ? name + " of " + format_bytes(static_cast<double>(use.bytes)) : name;
}

std::string percent(double share) { return format("%.1f %%", share * 100); }

std::string time_and_share(int64_t ns, double share) {
  return format("%s (%s)", format_ns(static_cast<double>(ns)).c_str(), percent(share).c_str());
}

std::string rank_list(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "all ranks";
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    runs.push_back(j == i       ? format("%d", ranks[i])
                   : j == i + 1 ? format("%d, %d", ranks[i], ranks[j])
                                : format("%d-%d", ranks[i], ranks[j]));
    i = j + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(runs, ", ");
}

void set_cost(Finding& finding, const JobView& view, int64_t ns) {
  finding.cost_ns = ns;
  finding.share = view.share(ns);
}

}  // namespace vitrine
