// Rules on host, input and compute: each with the fault, nearly with it, without it, and where it
// must abstain.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "analysis/facts_builder.h"
#include "core/error.h"

namespace vitrine {
namespace {

JobFacts pair_with(IdleCause cause,
                   int64_t first_ms,
                   int64_t second_ms,
                   const std::string& what = "") {
  RankFacts a = busy_rank(0), b = busy_rank(1);
  if (first_ms > 0) add_idle(a, cause, first_ms, what);
  if (second_ms > 0) add_idle(b, cause, second_ms, what);
  return job_of({a, b});
}

TEST(Diagnosis, OfABusyJobIsNothingWorthChangingWithTheReasonInNumbers) {
  const Diagnosis diagnosis = diagnose(job_of({busy_rank(0), busy_rank(1)}));
  for (const Finding& finding : diagnosis.findings) EXPECT_EQ(finding.severity, Severity::kNote);
  EXPECT_TRUE(diagnosis.verdict.starts_with("Nothing worth changing")) << diagnosis.verdict;
  EXPECT_NE(diagnosis.verdict.find("100.0 %"), std::string::npos) << diagnosis.verdict;
}

TEST(Diagnosis, OfNothingOrOfHostsAloneIsNotJudged) {
  EXPECT_TRUE(diagnose(JobFacts{}).verdict.starts_with("Not judged"));
  RankFacts host = busy_rank(0);
  host.device_work = false;
  const Diagnosis diagnosis = diagnose(job_of({host}));
  EXPECT_TRUE(diagnosis.findings.empty());
  EXPECT_TRUE(diagnosis.verdict.starts_with("Not judged"));
}

TEST(Diagnosis, RanksFindingsByCostAndNotesUnderTwoPercent) {
  JobFacts job = pair_with(IdleCause::kDataLoading, 30, 30);
  for (RankFacts& rank : job.ranks) {
    add_idle(rank, IdleCause::kHostSync, 10);
    add_idle(rank, IdleCause::kRegion, 1, "logging");
  }
  const Diagnosis diagnosis = diagnose(job);
  ASSERT_GE(diagnosis.findings.size(), 3u);
  EXPECT_EQ(diagnosis.findings[0].rule, "input_starvation");
  EXPECT_EQ(diagnosis.findings[0].severity, Severity::kCritical);
  EXPECT_EQ(diagnosis.findings[1].rule, "host_sync");
  EXPECT_EQ(diagnosis.findings[1].severity, Severity::kWarning);
  const std::optional<Finding> region = find(diagnosis, "host_region");
  ASSERT_TRUE(region.has_value());
  EXPECT_EQ(region->severity, Severity::kNote);
  EXPECT_FALSE(warned(diagnosis, "host_region").has_value());
}

TEST(Diagnosis, SeveritiesHaveNamesBothWays) {
  for (const Severity one : {Severity::kNote, Severity::kWarning, Severity::kCritical}) {
    EXPECT_EQ(severity_from_name(severity_name(one)), one);
  }
  EXPECT_THROW(severity_from_name("fatal"), ConfigError);
}

TEST(Rules, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Rule& rule : all_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(std::string(rule.phenomenon).empty());
  }
}

TEST(InputStarvation, ChargesTheSlowestRankWhereAllLoad) {
  const Diagnosis diagnosis = diagnose(pair_with(IdleCause::kDataLoading, 60, 40, "data"));
  const std::optional<Finding> found = warned(diagnosis, "input_starvation");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost_ns, 60 * kMs);
  EXPECT_DOUBLE_EQ(found->share, 0.6);
  EXPECT_TRUE(found->ranks.empty());  // all
  EXPECT_TRUE(says(*found, "'data'"));
  EXPECT_TRUE(says(*found, "num_workers"));
  // Places to jump to, in the ranks' own time.
  const bool place =
      std::any_of(found->evidence.begin(), found->evidence.end(), [](const Evidence& e) {
        return e.rank == 0 && e.step == 0 && e.begin_ns == 0 && e.end_ns == 60 * kMs;
      });
  EXPECT_TRUE(place);
}

TEST(InputStarvation, IsANoteWhenNearlyAbsentAndNothingWhenAbsent) {
  const Diagnosis little = diagnose(pair_with(IdleCause::kDataLoading, 1, 1));
  EXPECT_TRUE(find(little, "input_starvation").has_value());
  EXPECT_FALSE(warned(little, "input_starvation").has_value());
  EXPECT_FALSE(find(diagnose(job_of({busy_rank(0)})), "input_starvation").has_value());
}

TEST(InputStarvation, OfOneRankAloneIsTheStragglers) {
  JobFacts job = pair_with(IdleCause::kDataLoading, 0, 40);
  job.straggler.tested = true;
  job.straggler.stragglers.push_back({1, 4, 4, 40 * kMs, 1e-4, "input", "40 ms against 0", {}});
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_FALSE(find(diagnosis, "input_starvation").has_value());
  const std::optional<Finding> late = warned(diagnosis, "straggler");
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->cost_ns, 40 * kMs);
  EXPECT_TRUE(says(*late, "by its input"));
}

TEST(LaunchBound, ChargesWhatEveryRankHas) {
  JobFacts job = pair_with(IdleCause::kHostLaunch, 60, 40);
  for (RankFacts& rank : job.ranks) {
    rank.launch.kernel_median_ns = 4000;
    rank.launch.short_kernels = 900;
  }
  const std::optional<Finding> found = warned(diagnose(job), "launch_bound");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost_ns, 40 * kMs);
  EXPECT_EQ(found->severity, Severity::kCritical);
  EXPECT_TRUE(says(*found, "reduce-overhead"));
  EXPECT_TRUE(says(*found, "90 % under 10 us"));
}

TEST(LaunchBound, IsANoteUnderATenthOfTheStepSinceRecordingLaunchesCostsThat) {
  EXPECT_FALSE(
      warned(diagnose(pair_with(IdleCause::kHostLaunch, 9, 9)), "launch_bound").has_value());
  EXPECT_TRUE(
      warned(diagnose(pair_with(IdleCause::kHostLaunch, 11, 11)), "launch_bound").has_value());
}

TEST(LaunchBound, OfOneRankIsNotTheJobs) {
  EXPECT_FALSE(
      find(diagnose(pair_with(IdleCause::kHostLaunch, 0, 60)), "launch_bound").has_value());
}

TEST(LaunchBound, AbstainsWithoutLaunches) {
  JobFacts job = pair_with(IdleCause::kUnknown, 40, 40);
  for (RankFacts& rank : job.ranks) rank.launch = {};
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_TRUE(abstained(diagnosis, "launch_bound"));
  EXPECT_FALSE(find(diagnosis, "launch_bound").has_value());
  const std::optional<Finding> unknown = find(diagnosis, "unexplained_idle");
  ASSERT_TRUE(unknown.has_value());
  EXPECT_EQ(unknown->severity, Severity::kNote);
}

TEST(LaunchBound, WithoutStepsIsNeverCritical) {
  JobFacts job = pair_with(IdleCause::kHostLaunch, 90, 90);
  for (RankFacts& rank : job.ranks) rank.steps.clear();
  const std::optional<Finding> found = warned(diagnose(job), "launch_bound");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->severity, Severity::kWarning);
  EXPECT_TRUE(says(*found, "start-up"));
}

TEST(LaunchBound, TellsPausesFromSlowLaunches) {
  RankFacts rank = busy_rank(0);
  add_idle(rank, IdleCause::kHostLaunch, 40);
  EXPECT_EQ(find(diagnose(job_of({rank})), "launch_bound")->title, "Host pauses for long");
  rank.gaps.clear();  // the longest gaps are short: many of them
  EXPECT_EQ(find(diagnose(job_of({rank})), "launch_bound")->title, "Host launches too slowly");
}

TEST(LaunchBound, CallsOfTheAllocatorGetTheirOwnWords) {
  RankFacts rank = busy_rank(0);
  add_idle(rank, IdleCause::kHostLaunch, 30, "hipFree");
  const std::optional<Finding> found = warned(diagnose(job_of({rank})), "launch_bound");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->title, "Allocator calls stop the device");
  for (const std::string& way : found->fix) EXPECT_EQ(way.find("AdamW"), std::string::npos) << way;

  RankFacts launching = busy_rank(0);
  add_idle(launching, IdleCause::kHostLaunch, 30, "cudaLaunchKernel");
  EXPECT_EQ(warned(diagnose(job_of({launching})), "launch_bound")->title, "Host pauses for long");
}

TEST(LaunchBound, WithoutOperatorsOfTheHostIsANoteForWhyIsNotKnown) {
  JobFacts job = pair_with(IdleCause::kHostLaunch, 30, 30);
  ASSERT_TRUE(warned(diagnose(job), "launch_bound").has_value());
  for (RankFacts& rank : job.ranks) rank.operators.clear();
  const auto found = find(diagnose(job), "launch_bound");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->severity, Severity::kNote);
  EXPECT_NE(found->cause.find("not known"), std::string::npos) << found->cause;
}

TEST(LaunchBound, OfTwoStepsIsNeverCritical) {
  RankFacts rank = busy_rank(0, 100, 2);
  add_idle(rank, IdleCause::kHostLaunch, 90);
  const auto found = find(diagnose(job_of({rank})), "launch_bound");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->severity, Severity::kWarning);
  EXPECT_NE(found->cause.find("Only 2 steps were recorded"), std::string::npos) << found->cause;
}

TEST(LaunchBound, AdviceOnTheOptimizerIsForTraining) {
  RankFacts rank = busy_rank(0);
  add_idle(rank, IdleCause::kHostLaunch, 50);
  const auto advice = [](const RankFacts& facts) {
    const std::optional<Finding> found = find(diagnose(job_of({facts})), "launch_bound");
    std::string out;
    for (const std::string& fix : found->fix) out += fix;
    return out;
  };
  EXPECT_NE(advice(rank).find("AdamW"), std::string::npos);
  rank.phase_ns = {};
  EXPECT_EQ(advice(rank).find("AdamW"), std::string::npos);
}

TEST(Gain, SaysWhatTheDependencyGraphPredicts) {
  JobFacts job = pair_with(IdleCause::kDataLoading, 40, 40);
  EXPECT_EQ(find(diagnose(job), "input_starvation")->gain.find("dependencies"), std::string::npos);
  add_answer(job.ranks[0], Change::kInstantData, 80);
  const std::string gain = find(diagnose(job), "input_starvation")->gain;
  EXPECT_NE(gain.find("by the dependencies of rank 0 (data loader infinitely fast) a step of "
                      "100.0 ms would take 80.0 ms, 1.25x"),
            std::string::npos)
      << gain;
  job.ranks[0].critical_path.what_if[0].span_ns = job.ranks[0].critical_path.span_ns();
  const std::string none = find(diagnose(job), "input_starvation")->gain;
  EXPECT_NE(none.find("would be no shorter"), std::string::npos) << none;
}

TEST(Evidence, OfAGapWithMoreThanOneCauseStatesItsPart) {
  RankFacts rank = busy_rank(0);
  add_idle(rank, IdleCause::kRegion, 20, "logging");
  for (Gap& gap : rank.gaps) gap.cause_ns = gap.duration_ns / 2;
  const auto found = find(diagnose(job_of({rank})), "host_region");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->evidence.front().text,
            "rank 0: idle for 20.0 ms, 10.0 ms of it for this, the host in logging");
}

TEST(HostSync, NamesTheCall) {
  const std::optional<Finding> found =
      warned(diagnose(pair_with(IdleCause::kHostSync, 8, 8, "cudaStreamSynchronize")), "host_sync");
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(says(*found, "cudaStreamSynchronize"));
  EXPECT_TRUE(says(*found, ".item()"));
  EXPECT_FALSE(warned(diagnose(pair_with(IdleCause::kHostSync, 1, 1)), "host_sync").has_value());
  EXPECT_FALSE(find(diagnose(job_of({busy_rank(0)})), "host_sync").has_value());
}

TEST(StreamWait, LeavesOutTheMicrosecondsBetweenKernels) {
  const auto between =
      find(diagnose(pair_with(IdleCause::kStreamWait, 5, 5, "between kernels")), "stream_wait");
  ASSERT_TRUE(between.has_value());
  EXPECT_EQ(between->severity, Severity::kNote);
  EXPECT_EQ(between->title, "Short gaps between kernels");
  EXPECT_FALSE(
      find(diagnose(pair_with(IdleCause::kStreamWait, 1, 1, "between kernels")), "stream_wait")
          .has_value());
  // What holds back bears no name of its own where the trace tells none.
  RankFacts both = busy_rank(0);
  add_idle(both, IdleCause::kStreamWait, 5, "between kernels");
  add_idle(both, IdleCause::kStreamWait, 20);
  const auto held = warned(diagnose(job_of({both})), "stream_wait");
  ASSERT_TRUE(held.has_value());
  EXPECT_EQ(held->cost_ns, 20 * kMs);
  EXPECT_TRUE(warned(diagnose(pair_with(IdleCause::kStreamWait, 5, 5, "stream 20")), "stream_wait")
                  .has_value());
}

// Six tenths of the compute are products; the rest of them after `of_kernel` uses tensor cores.
JobFacts products(const std::string& device,
                  int64_t percent_of_kernel,
                  const std::string& of_kernel) {
  RankFacts rank = busy_rank(0);
  rank.device = device;
  const int64_t all = rank.total.compute_ns;
  rank.matmul_ns = all * 6 / 10;
  rank.class_ns[static_cast<size_t>(KernelClass::kMatmul)] = rank.matmul_ns;
  rank.class_ns[static_cast<size_t>(KernelClass::kElementwise)] = all - rank.matmul_ns;
  KernelRow row;
  row.name = of_kernel;
  row.kind = KernelClass::kMatmul;
  row.count = 100;
  row.total_ns = rank.matmul_ns * percent_of_kernel / 100;
  rank.tensor_core_ns = rank.matmul_ns - row.total_ns;
  rank.kernels.push_back(row);
  return job_of({rank});
}
constexpr const char* kFp32Kernel = "ampere_sgemm_128x64_tn";

TEST(NoTensorCores, IsSaidOfCardsThatHaveThem) {
  const std::optional<Finding> found =
      warned(diagnose(products("NVIDIA A100-SXM4-80GB", 100, kFp32Kernel)), "no_tensor_cores");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost_ns, 30 * kMs);  // half of the 60 ms
  EXPECT_TRUE(says(*found, "set_float32_matmul_precision"));
  const std::optional<Finding> volta =
      warned(diagnose(products("Tesla V100-SXM2-16GB", 100, kFp32Kernel)), "no_tensor_cores");
  ASSERT_TRUE(volta.has_value());
  EXPECT_FALSE(says(*volta, "bfloat16"));
}

TEST(NoTensorCores, NeedsMostProductsWithoutAndAbstainsOnUnknownCards) {
  EXPECT_FALSE(find(diagnose(products("NVIDIA A100-SXM4-80GB", 40, kFp32Kernel)), "no_tensor_cores")
                   .has_value());
  const Diagnosis diagnosis = diagnose(products("AMD Instinct MI300X", 100, kFp32Kernel));
  EXPECT_FALSE(find(diagnosis, "no_tensor_cores").has_value());
  EXPECT_TRUE(abstained(diagnosis, "no_tensor_cores"));
}

TEST(NoTensorCores, ReadsWholeWordsOfTheCardsName) {
  for (const char* name : {"NVIDIA T400", "NVIDIA A1000", "NVIDIA GeForce GTX 1080"}) {
    EXPECT_TRUE(abstained(diagnose(products(name, 100, kFp32Kernel)), "no_tensor_cores")) << name;
  }
  const auto ada = warned(diagnose(products("NVIDIA RTX 2000 Ada Generation", 100, kFp32Kernel)),
                          "no_tensor_cores");
  ASSERT_TRUE(ada.has_value());
  EXPECT_TRUE(says(*ada, "bfloat16"));
  const auto turing =
      warned(diagnose(products("NVIDIA GeForce RTX 2080 Ti", 100, kFp32Kernel)), "no_tensor_cores");
  ASSERT_TRUE(turing.has_value());
  EXPECT_FALSE(says(*turing, "bfloat16"));
  EXPECT_TRUE(warned(diagnose(products("NVIDIA GeForce RTX 4070 SUPER", 100, kFp32Kernel)),
                     "no_tensor_cores"));
}

TEST(NoTensorCores, IsNotSaidOfKernelsWhoseNamesSayNothing) {
  const Diagnosis diagnosis =
      diagnose(products("NVIDIA B200", 100, "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2"));
  EXPECT_FALSE(find(diagnosis, "no_tensor_cores").has_value());
}

TEST(DominantKernels, AreANoteOnly) {
  const Diagnosis diagnosis = diagnose(products("NVIDIA A100-SXM4-80GB", 100, kFp32Kernel));
  const std::optional<Finding> found = find(diagnosis, "dominant_kernels");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->severity, Severity::kNote);
  EXPECT_TRUE(says(*found, "ampere_sgemm_128x64_tn"));
}

TEST(ExposedCopies, KnowPageableMemory) {
  RankFacts rank = busy_rank(0);
  for (StepFacts& step : rank.steps)
    take_from_compute(step.time, &Breakdown::exposed_copy_ns, 5 * kMs);
  rank.kernels.push_back({"Memcpy HtoD (Pageable -> Device)",
                          KernelClass::kOther,
                          false,
                          true,
                          false,
                          4,
                          20 * kMs,
                          5 * kMs,
                          5 * kMs});
  const std::optional<Finding> found = warned(diagnose(job_of({rank})), "exposed_copies");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost_ns, 5 * kMs);
  EXPECT_TRUE(says(*found, "pin_memory=True"));
  EXPECT_FALSE(find(diagnose(job_of({busy_rank(0)})), "exposed_copies").has_value());
}

TEST(RecomputeUnneeded, DependsOnTheMemory) {
  RankFacts rank = busy_rank(0);
  for (StepFacts& step : rank.steps) step.recompute_ns = 20 * kMs;
  rank.recompute_ns = 80 * kMs;
  rank.recompute_evidence = "forward kernels in checkpoint regions of backward";
  const std::optional<Finding> unknown = warned(diagnose(job_of({rank})), "recompute_unneeded");
  ASSERT_TRUE(unknown.has_value());
  EXPECT_EQ(unknown->title, "Recomputation seen");
  EXPECT_EQ(unknown->severity, Severity::kWarning);  // whether it is needed is not known
  EXPECT_EQ(unknown->cost_ns, 20 * kMs);

  rank.memory.known = true;
  rank.memory.capacity = 100;
  rank.memory.peak_allocated = rank.memory.peak_reserved = 40;
  const std::optional<Finding> idle = warned(diagnose(job_of({rank})), "recompute_unneeded");
  ASSERT_TRUE(idle.has_value());
  EXPECT_EQ(idle->title, "Recomputation without need");
  rank.memory.peak_reserved = 90;
  EXPECT_FALSE(warned(diagnose(job_of({rank})), "recompute_unneeded").has_value());
  EXPECT_FALSE(find(diagnose(job_of({busy_rank(0)})), "recompute_unneeded").has_value());
}

TEST(ProfilerOverhead, AndArtefactsAreNotes) {
  RankFacts rank = busy_rank(0);
  add_idle(rank, IdleCause::kProfiler, 10);
  add_idle(rank, IdleCause::kGraphReplay, 20);
  rank.launch.before_launch = 50;
  const Diagnosis diagnosis = diagnose(job_of({rank}));
  ASSERT_TRUE(find(diagnosis, "profiler_overhead").has_value());
  ASSERT_TRUE(find(diagnosis, "trace_artefacts").has_value());
  for (const Finding& finding : diagnosis.findings)
    EXPECT_EQ(finding.severity, Severity::kNote) << finding.rule;
}

}  // namespace
}  // namespace vitrine
