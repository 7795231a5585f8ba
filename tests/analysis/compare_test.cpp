// Two runs compared, on facts made by hand with known differences.
#include "analysis/compare.h"

#include <gtest/gtest.h>

#include "analysis/facts_builder.h"

namespace vitrine {
namespace {

const ComparedRow* row_of(const std::vector<ComparedRow>& rows, const std::string& name) {
  for (const ComparedRow& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

TEST(Compare, NamesTheDataLoader) {
  RankFacts slow = busy_rank(0, 160);
  add_idle(slow, IdleCause::kDataLoading, 60);
  const Comparison found = compare(job_of({slow}), job_of({busy_rank(0, 100)}));
  EXPECT_TRUE(found.per_step);
  EXPECT_EQ(found.step.a, 160e6);
  EXPECT_EQ(found.step.difference, -60e6);
  EXPECT_NE(found.summary.find("(-37.5 %)"), std::string::npos) << found.summary;
  EXPECT_NE(found.summary.find("The largest cause is the data loader: 60.0 ms a step less"),
            std::string::npos)
      << found.summary;
  const ComparedRow* idle = row_of(found.parts, "idle");
  ASSERT_NE(idle, nullptr);
  EXPECT_EQ(idle->share, 1);
  EXPECT_EQ(found.host.front().name, "data loader");
}

TEST(Compare, OfARunWithItselfFindsNothing) {
  const JobFacts job = job_of({busy_rank(0), busy_rank(1)});
  const Comparison found = compare(job, job);
  EXPECT_EQ(found.step.difference, 0);
  for (const auto* rows : {&found.parts, &found.phases, &found.idle, &found.kernels}) {
    for (const ComparedRow& row : *rows) EXPECT_EQ(row.difference, 0) << row.name;
  }
  EXPECT_NE(found.summary.find("no difference beyond"), std::string::npos) << found.summary;
}

KernelRow kernel(const std::string& name, int64_t count, int64_t ms) {
  KernelRow row;
  row.name = name;
  row.count = count;
  row.total_ns = ms * kMs;
  return row;
}

TEST(Compare, JoinsKernelsWithoutTemplateArgumentsAndKeepsOneSidedOnes) {
  RankFacts a = busy_rank(0, 110), b = busy_rank(0, 100);
  a.kernels = {kernel("void gemm<float, 128>(float*)", 40, 200), kernel("old_norm", 4, 40)};
  b.kernels = {kernel("void gemm<half, 64>(half*)", 20, 120), kernel("new_norm", 4, 8)};
  const Comparison found = compare(job_of({a}), job_of({b}));
  ASSERT_EQ(found.kernels.size(), 3u);
  const ComparedRow& gemm = found.kernels[0];
  EXPECT_EQ(gemm.name, "gemm");
  EXPECT_EQ(gemm.difference, -20e6);  // of four steps: 50 ms a step became 30
  EXPECT_EQ(gemm.count_a, 10);
  EXPECT_EQ(gemm.count_b, 5);
  const ComparedRow* old_norm = row_of(found.kernels, "old_norm");
  ASSERT_NE(old_norm, nullptr);
  EXPECT_FALSE(old_norm->in_b);
  EXPECT_FALSE(row_of(found.kernels, "new_norm")->in_a);
  EXPECT_NE(found.summary.find("compute: 10.0 ms a step less, most of it in gemm (20.0 ms"),
            std::string::npos)
      << found.summary;
}

TEST(Compare, TakesMeansOverRanksOfUnequalNumber) {
  RankFacts idle = busy_rank(1);
  add_idle(idle, IdleCause::kHostLaunch, 20);
  const Comparison found = compare(job_of({busy_rank(0), idle}), job_of({busy_rank(0)}));
  EXPECT_EQ(row_of(found.parts, "idle")->a, 10e6);
  EXPECT_NE(found.notes.front().find("2 ranks against 1"), std::string::npos);
}

TEST(Compare, UsesTotalsWhereOneRunHasNoSteps) {
  RankFacts bare = busy_rank(0);
  bare.steps.clear();
  const Comparison found = compare(job_of({bare}), job_of({busy_rank(0)}));
  EXPECT_FALSE(found.per_step);
  EXPECT_EQ(found.step.name, "recording");
  EXPECT_EQ(found.step.a, 400e6);
  EXPECT_EQ(found.step.b, 400e6);
  EXPECT_FALSE(found.notes.empty());
}

TEST(Compare, SaysWhenARunHasNothingOnADevice) {
  const Comparison found = compare(JobFacts{}, job_of({busy_rank(0)}));
  EXPECT_TRUE(found.summary.starts_with("Not comparable"));
  EXPECT_FALSE(found.comparable);
  EXPECT_FALSE(found.step.in_a);
  EXPECT_TRUE(found.step.in_b);
  EXPECT_TRUE(found.parts.empty() && found.idle.empty() && found.kernels.empty());
}

TEST(Compare, SeparatesCollectivesBySizeAndMemoryByPeak) {
  RankFacts a = busy_rank(0), b = busy_rank(0);
  a.memory.peak_allocated = 100;
  b.memory.peak_allocated = 60;
  JobFacts first = job_of({a}), second = job_of({b});
  add_collective(first, {.bytes = 1 << 20, .ms = 4, .exposed_ms = 0});
  add_collective(first, {.bytes = 2 << 20, .ms = 4, .exposed_ms = 0});
  add_collective(second, {.bytes = 2 << 20, .ms = 6, .exposed_ms = 0});
  const Comparison found = compare(first, second);
  EXPECT_FALSE(row_of(found.collectives, "all_reduce of 1.00 MiB")->in_b);
  EXPECT_EQ(row_of(found.collectives, "all_reduce of 2.00 MiB")->difference, 2e6);
  EXPECT_EQ(row_of(found.memory, "peak allocated")->difference, -40);
}

TEST(KernelBaseName, LeavesTemplatesAndArgumentsOut) {
  EXPECT_EQ(kernel_base_name("void at::native::vec<4, at::native::Add<float> >(int, float*)"),
            "at::native::vec");
  EXPECT_EQ(kernel_base_name("void at::native::(anonymous namespace)::norm<float>(int)"),
            "at::native::(anonymous namespace)::norm");
  EXPECT_EQ(kernel_base_name("Memcpy HtoD (Pageable -> Device)"),
            "Memcpy HtoD (Pageable -> Device)");
  EXPECT_EQ(kernel_base_name("ampere_sgemm_128x64_tn"), "ampere_sgemm_128x64_tn");
  EXPECT_EQ(kernel_base_name("broken<name"), "broken<name");
  EXPECT_EQ(kernel_base_name(""), "");
}

}  // namespace
}  // namespace vitrine
