// Rules on memory and cards: each with the fault, nearly with it, without it, and where it must
// abstain.
#include <gtest/gtest.h>

#include "analysis/facts_builder.h"

namespace vitrine {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

RankFacts with_memory(int32_t rank,
                      int64_t allocated,
                      int64_t reserved,
                      int64_t capacity = 80 * kGiB) {
  RankFacts out = busy_rank(rank);
  out.memory.known = true;
  out.memory.peak_allocated = allocated;
  out.memory.peak_reserved = reserved;
  out.memory.capacity = capacity;
  out.memory.holders = {{"model.py:12 attention", "activations", allocated / 2}};
  return out;
}

TEST(MemoryEdge, WarnsNearTheEdgeAndNamesTheHolder) {
  const auto found =
      warned(diagnose(job_of({with_memory(0, 70 * kGiB, 76 * kGiB)})), "memory_edge");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost_ns, 0);
  EXPECT_TRUE(says(*found, "95.0 %"));
  EXPECT_TRUE(says(*found, "model.py:12 attention"));
  EXPECT_FALSE(find(diagnose(job_of({with_memory(0, 70 * kGiB, 72 * kGiB)})), "memory_edge"));
}

TEST(MemoryEdge, IsCriticalOnceMemoryRanOutAndKnowsLooseSnapshots) {
  JobFacts job;
  MemoryFacts memory = with_memory(0, 70 * kGiB, 76 * kGiB, 0).memory;
  memory.source = "allocator snapshot";
  memory.out_of_memory = 1;
  job.loose_memory.push_back(memory);
  const auto found = warned(diagnose(job), "memory_edge");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->severity, Severity::kCritical);
}

TEST(MemoryEdge, AbstainsWithoutMemoryOrCapacity) {
  EXPECT_TRUE(abstained(diagnose(job_of({busy_rank(0)})), "memory_edge"));
  EXPECT_TRUE(abstained(diagnose(job_of({with_memory(0, kGiB, kGiB, 0)})), "memory_edge"));
}

TEST(MemoryFragmentation, WarnsWhereTheMemoryIsNeeded) {
  RankFacts rank = with_memory(0, 50 * kGiB, 70 * kGiB);
  rank.memory.fragmentation = 20 * kGiB;
  EXPECT_TRUE(
      says(*warned(diagnose(job_of({rank})), "memory_fragmentation"), "expandable_segments:True"));
  rank.memory.capacity = 140 * kGiB;  // room enough
  EXPECT_FALSE(warned(diagnose(job_of({rank})), "memory_fragmentation"));
  EXPECT_TRUE(find(diagnose(job_of({rank})), "memory_fragmentation"));
  rank.memory.fragmentation = 7 * kGiB;  // a tenth
  EXPECT_FALSE(find(diagnose(job_of({rank})), "memory_fragmentation"));
}

TEST(MemoryImbalance, NamesTheFullestRank) {
  const auto found = warned(diagnose(job_of({with_memory(0, 60 * kGiB, 62 * kGiB),
                                             with_memory(1, 40 * kGiB, 42 * kGiB)})),
                            "memory_imbalance");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks, std::vector<int32_t>{0});
  EXPECT_TRUE(says(*found, "1.50 times"));
  EXPECT_FALSE(find(diagnose(job_of({with_memory(0, 48 * kGiB, 50 * kGiB),
                                     with_memory(1, 40 * kGiB, 42 * kGiB)})),
                    "memory_imbalance"));
  EXPECT_FALSE(find(diagnose(job_of({with_memory(0, 60 * kGiB, 62 * kGiB)})), "memory_imbalance"));
}

JobFacts sharded(int64_t own_parameters, int32_t data) {
  std::vector<RankFacts> ranks;
  for (int32_t i = 0; i < data; ++i) {
    RankFacts rank = with_memory(i, 20 * kGiB, 22 * kGiB);
    rank.memory.category_known = true;
    rank.memory.at_peak.by_category[static_cast<size_t>(MemoryCategory::kParameters)] =
        own_parameters;
    ranks.push_back(std::move(rank));
  }
  JobFacts job = job_of(std::move(ranks));
  job.layout.data = data;
  job.layout.data_sharded = true;
  add_collective(job,
                 {.name = "all_gather",
                  .bytes = 8 * kGiB,
                  .ms = 10,
                  .exposed_ms = 0,
                  .phase = Phase::kForward});
  return job;
}

TEST(ShardingWithoutEffect, ComparesWhatARankKeepsWithOneCopy) {
  EXPECT_TRUE(warned(diagnose(sharded(8 * kGiB, 4)), "sharding_without_effect"));
  EXPECT_FALSE(
      find(diagnose(sharded(4 * kGiB, 4)), "sharding_without_effect"));  // fp32 quarters of bf16
  // Two ranks in fp32 hold as much as one copy in bf16: not told apart.
  EXPECT_FALSE(find(diagnose(sharded(8 * kGiB, 2)), "sharding_without_effect"));
}

TEST(ShardingWithoutEffect, KnowsGroupsOfOneAndAbstainsWithoutCategories) {
  JobFacts alone = sharded(8 * kGiB, 1);
  EXPECT_FALSE(find(diagnose(alone), "sharding_without_effect"));  // as of data and context ranks
  alone.layout.sharded_alone = true;
  EXPECT_TRUE(says(*warned(diagnose(alone), "sharding_without_effect"), "single rank"));
  JobFacts unknown = sharded(8 * kGiB, 4);
  for (RankFacts& rank : unknown.ranks) rank.memory.category_known = false;
  EXPECT_TRUE(abstained(diagnose(unknown), "sharding_without_effect"));
  EXPECT_FALSE(find(diagnose(unknown), "sharding_without_effect"));
}

TEST(ThrottledCard, NeedsTwoSignsOrTheReason) {
  RankFacts rank = busy_rank(0);
  rank.counters = {{"GPU temperature", 10, 60, 80, 88}, {"SM clock", 10, 900, 1200, 1980}};
  const auto hot = warned(diagnose(job_of({rank})), "throttled_card");
  ASSERT_TRUE(hot.has_value());
  EXPECT_TRUE(says(*hot, "up to 88"));
  rank.counters.pop_back();
  EXPECT_FALSE(find(diagnose(job_of({rank})), "throttled_card"));
  rank.counters.clear();
  EXPECT_TRUE(abstained(diagnose(job_of({rank})), "throttled_card"));
}

TEST(ThrottledCard, KnowsHalfPowerWithFullMemory) {
  RankFacts rank = with_memory(0, 70 * kGiB, 72 * kGiB);
  rank.counters = {{"power draw", 10, 200, 300, 400},
                   {"power limit", 10, 700, 700, 700},
                   {"memory used", 10, 0, 0, 78.0 * static_cast<double>(kGiB)}};
  const auto found = warned(diagnose(job_of({rank})), "throttled_card");
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(says(*found, "300 of 700 W"));
  rank.counters[0].mean = 500;
  EXPECT_FALSE(find(diagnose(job_of({rank})), "throttled_card"));
  // A limit that comes first is not taken for the draw.
  rank.counters[0].mean = 300;
  std::swap(rank.counters[0], rank.counters[1]);
  EXPECT_TRUE(find(diagnose(job_of({rank})), "throttled_card"));
}

JobFacts same_kernels(double slower, int slow_kinds) {
  std::vector<RankFacts> ranks;
  for (int32_t i = 0; i < 3; ++i) {
    RankFacts rank = busy_rank(i);
    for (int kind = 0; kind < 8; ++kind) {
      const double factor = i == 2 && kind < slow_kinds ? slower : 1;
      KernelRow row;
      row.name = "kernel" + std::to_string(kind);
      row.count = 10;
      row.total_ns = static_cast<int64_t>(40e6 * factor);
      rank.kernels.push_back(row);
    }
    ranks.push_back(std::move(rank));
  }
  return job_of(std::move(ranks));
}

TEST(ThrottledCard, IsOneWhoseSameKernelsAreAllSlower) {
  const auto found = warned(diagnose(same_kernels(1.3, 8)), "throttled_card");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks, std::vector<int32_t>{2});
  EXPECT_TRUE(says(*found, "1.30 times"));
  EXPECT_FALSE(find(diagnose(same_kernels(1.05, 8)), "throttled_card"));
  // A few slower kinds are other data, not the card.
  EXPECT_FALSE(find(diagnose(same_kernels(2, 3)), "throttled_card"));
}

}  // namespace
}  // namespace vitrine
