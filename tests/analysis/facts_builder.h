// Facts of a job by hand: ranks of equal steps that only compute, and what a test takes from that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/finding.h"

namespace vitrine {

constexpr int64_t kMs = 1000000;

inline void take_from_compute(Breakdown& time, int64_t Breakdown::*part, int64_t ns) {
  time.compute_ns -= ns;
  time.*part += ns;
}

// A rank whose device computes all the time, in `steps` steps of `step_ms`.
inline RankFacts busy_rank(int32_t rank, int64_t step_ms = 100, int32_t steps = 4) {
  RankFacts out;
  out.rank = rank;
  out.source = "rank" + std::to_string(rank) + ".json";
  out.device = "NVIDIA H200";
  out.device_work = true;
  out.end_ns = step_ms * kMs * steps;
  out.total.span_ns = out.total.compute_ns = out.end_ns;
  out.launch.launches = out.launch.kernels = 1000;
  out.launch.kernel_median_ns = 100000;
  out.operators = {{"aten::mm", "", 1000}};
  out.phase_ns[static_cast<size_t>(Phase::kBackward)] = 1;
  for (int32_t i = 0; i < steps; ++i) {
    StepFacts step;
    step.step = i;
    step.name = "ProfilerStep#" + std::to_string(i);
    step.start_ns = i * step_ms * kMs;
    step.duration_ns = step_ms * kMs;
    step.time.span_ns = step.time.compute_ns = step.duration_ns;
    step.device = step.time;
    step.kernels = 250;
    out.steps.push_back(step);
  }
  return out;
}

// In every step.
inline void add_idle(RankFacts& rank, IdleCause cause, int64_t ms, const std::string& what = "") {
  for (StepFacts& step : rank.steps) {
    take_from_compute(step.time, &Breakdown::idle_ns, ms * kMs);
    take_from_compute(rank.total, &Breakdown::idle_ns, ms * kMs);
    step.idle_by_cause[static_cast<size_t>(cause)] += ms * kMs;
    rank.idle_by_cause[static_cast<size_t>(cause)] += ms * kMs;
    rank.gaps.push_back({step.start_ns, ms * kMs, cause, what, step.step});
    if (cause == IdleCause::kDataLoading) step.data_ns += ms * kMs;
    if (!what.empty()) rank.idle_by_what[idle_cause_name(cause) + (": " + what)] += ms * kMs;
  }
}

// A path through all steps whose answer to `change` is `then_ms` a step.
inline void add_answer(RankFacts& rank, Change change, int64_t then_ms) {
  PathFacts& path = rank.critical_path;
  path.end_ns = rank.end_ns;
  path.steps = static_cast<int64_t>(rank.steps.size());
  path.first_step = 0, path.last_step = static_cast<int32_t>(path.steps) - 1;
  path.part_ns[static_cast<size_t>(PathPart::kCompute)] = rank.end_ns;
  path.what_if.push_back({change, KernelClass::kOther, then_ms * kMs * path.steps, ""});
}

inline JobFacts job_of(std::vector<RankFacts> ranks) {
  JobFacts job;
  job.world_size = static_cast<int32_t>(ranks.size());
  job.ranks = std::move(ranks);
  job.clocks.resize(job.ranks.size());
  job.waits.resize(job.ranks.size());
  return job;
}

// In every step, on all ranks: `ms` long of which `exposed_ms`, of that `waits[rank]` ms for the
// rank that waits least (which is the one waited for).
struct CollectiveOf {
  std::string name = "all_reduce";
  int64_t bytes = 32 << 20;
  int64_t ms = 10, exposed_ms = 10;
  std::vector<int64_t> waits = {};  // by rank; empty: none
  Phase phase = Phase::kBackward;
};
inline void add_collective(JobFacts& job, const CollectiveOf& of) {
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    RankFacts& rank = job.ranks[i];
    if (rank.groups.empty()) rank.groups.push_back({"0", "", {}, job.world_size});
    for (StepFacts& step : rank.steps) {
      for (Breakdown* time : {&step.time, &step.device, &rank.total}) {
        if (time == &step.device && time->span_ns == 0) continue;
        time->communication_ns += of.ms * kMs;
        time->overlap_ns += (of.ms - of.exposed_ms) * kMs;
        take_from_compute(*time, &Breakdown::exposed_communication_ns, of.exposed_ms * kMs);
      }
      CollectiveUse use;
      use.start_ns = step.start_ns + static_cast<int64_t>(rank.collectives.size());
      use.duration_ns = of.ms * kMs;
      use.exposed_ns = of.exposed_ms * kMs;
      use.step = step.step;
      use.name = of.name;
      use.group = 0;
      use.phase = of.phase;
      use.bytes = of.bytes;
      rank.collectives.push_back(use);
    }
  }
  if (job.ranks.size() < 2) return;
  size_t late = 0;
  for (size_t i = 0; i < of.waits.size(); ++i) late = of.waits[i] < of.waits[late] ? i : late;
  const size_t steps = job.ranks.front().steps.size();
  const size_t first = job.ranks.front().collectives.size() - steps;
  for (size_t s = 0; s < steps; ++s) {
    MatchedCollective matched;
    matched.name = of.name;
    matched.group = "0";
    matched.step = static_cast<int32_t>(s);
    matched.bytes = of.bytes;
    matched.whole = true;
    for (size_t i = 0; i < job.ranks.size(); ++i) {
      MatchedCollective::Member member;
      member.rank_index = static_cast<int32_t>(i);
      member.use = static_cast<int32_t>(first + s);
      member.wait_ns = member.exposed_wait_ns = of.waits.empty() ? 0 : of.waits[i] * kMs;
      if (i == late) {
        matched.members.push_back(member);
      } else {
        matched.members.insert(matched.members.begin(), member);
      }
      if (member.wait_ns > 0) {
        auto& whom = job.waits[i].waited_for;
        if (whom.empty()) whom.emplace_back(job.ranks[late].rank, 0);
        whom.front().second += member.wait_ns;
      }
    }
    job.collectives.push_back(std::move(matched));
  }
}

// By value: the diagnosis may be a temporary.
inline std::optional<Finding> find(const Diagnosis& diagnosis, const std::string& rule) {
  for (const Finding& finding : diagnosis.findings) {
    if (finding.rule == rule) return finding;
  }
  return std::nullopt;
}
// A warning or worse; nothing for notes.
inline std::optional<Finding> warned(const Diagnosis& diagnosis, const std::string& rule) {
  std::optional<Finding> found = find(diagnosis, rule);
  return found && found->severity == Severity::kNote ? std::nullopt : found;
}
inline bool abstained(const Diagnosis& diagnosis, const std::string& rule) {
  for (const std::string& line : diagnosis.abstained) {
    if (line.starts_with(rule + ":")) return true;
  }
  return false;
}
inline std::string all_text(const Finding& finding) {
  std::string text = finding.title + "\n" + finding.summary + "\n" + finding.cause;
  for (const Evidence& evidence : finding.evidence) text += "\n" + evidence.text;
  for (const std::string& fix : finding.fix) text += "\n" + fix;
  return text;
}
inline bool says(const Finding& finding, const std::string& words) {
  return all_text(finding).find(words) != std::string::npos;
}

}  // namespace vitrine
