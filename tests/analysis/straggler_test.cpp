// Stragglers and outlier steps, on hand-made facts.
#include <gtest/gtest.h>

#include "analysis/blame.h"
#include "analysis/hand_made_job.h"

namespace vitrine {
namespace {

// `world` ranks, `steps` steps of 20 ms with 4 all-reduces each; `late(rank, step)` ns too late.
template <typename Late>
std::vector<RankFacts> trained(int32_t world, int32_t steps, Late late) {
  std::vector<RankFacts> ranks;
  for (int32_t r = 0; r < world; ++r) {
    RankFacts rank = hand_made_rank(r, world);
    for (int32_t s = 0; s < steps; ++s) {
      const int64_t begin = s * 20 * kMs;
      StepFacts& step = add_step(rank, s, begin, 20 * kMs);
      step.device.compute_ns = 10 * kMs + 4 * late(r, s);
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t at = begin + (4 * i + 2) * kMs;
        add_use(rank, "all_reduce", at + late(r, s), at + 1800 * kUs, 1 << 20, s);
      }
    }
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

TEST(Straggler, ARankThatIsLateEveryStepIsNamedWithItsReason) {
  std::vector<RankFacts> ranks =
      trained(4, 3, [](int32_t rank, int32_t) { return rank == 2 ? 1000 * kUs : 0; });
  for (RankFacts& rank : ranks)
    rank.kernels.push_back({"gemm", {}, false, false, true, 30, 3 * kMs});
  ranks[2].kernels.push_back({"extra_gemm", {}, false, false, true, 75, 12 * kMs});
  const StragglerFacts facts = measure_job(ranks, {}, {}).straggler;
  ASSERT_EQ(facts.stragglers.size(), 1u);
  const Straggler& straggler = facts.stragglers[0];
  EXPECT_EQ(straggler.rank, 2);
  EXPECT_EQ(straggler.steps, 3);
  EXPECT_EQ(straggler.of_steps, 3);
  EXPECT_EQ(straggler.cost_ns, 4 * kMs);
  EXPECT_LT(straggler.p_value, 1e-6);
  EXPECT_EQ(straggler.reason, "compute");
  ASSERT_EQ(straggler.more.size(), 1u);
  EXPECT_NE(straggler.more[0].find("extra_gemm"), std::string::npos);
  EXPECT_NE(straggler.more[0].find("25 calls against 0"), std::string::npos);
}

TEST(Straggler, TakingTurnsIsNoStraggler) {
  const auto ranks =
      trained(2, 12, [](int32_t rank, int32_t step) { return step % 2 == rank ? 900 * kUs : 0; });
  const StragglerFacts facts = measure_job(ranks, {}, {}).straggler;
  EXPECT_TRUE(facts.tested);
  EXPECT_TRUE(facts.stragglers.empty());
  EXPECT_FALSE(facts.note.empty());
}

// Two of three steps: eight collectives against four look significant, but are two slow spells.
TEST(Straggler, TwoSlowStepsOfThreeAreNoProof) {
  const auto ranks = trained(
      2, 3, [](int32_t rank, int32_t step) { return (step < 2) == (rank == 0) ? 900 * kUs : 0; });
  EXPECT_TRUE(measure_job(ranks, {}, {}).straggler.stragglers.empty());
}

TEST(Straggler, ACheapLatenessIsNotNamed) {
  const auto ranks = trained(2, 12, [](int32_t rank, int32_t) { return rank == 0 ? 30 * kUs : 0; });
  const StragglerFacts facts = measure_job(ranks, {}, {}).straggler;
  EXPECT_TRUE(facts.tested);
  EXPECT_TRUE(facts.stragglers.empty());
}

TEST(Straggler, OneRankAloneIsNotTested) {
  const auto ranks = trained(1, 3, [](int32_t, int32_t) { return int64_t{0}; });
  const StragglerFacts facts = measure_job(ranks, {}, {}).straggler;
  EXPECT_FALSE(facts.tested);
  EXPECT_FALSE(facts.note.empty());
}

// Rank 2 is late; 1 waits for it in their own group, and so makes 0 wait in another.
TEST(Straggler, BlameIsPassedOnToTheRankThatWasWaitedForFirst) {
  std::vector<MatchedCollective> collectives(2);
  collectives[0].name = collectives[1].name = "all_reduce";
  collectives[0].members = {{1, 0, 0, 1000, 900, 900}, {2, 0, 900, 1000, 0, 0}};
  collectives[1].members = {{0, 1, 100, 1200, 1000, 500}, {1, 1, 1100, 1200, 0, 0}};
  const std::vector<Blame> blames = follow_waits(3, collectives);
  ASSERT_EQ(blames.size(), 2u);
  EXPECT_EQ(blames[0].most, 2);
  EXPECT_EQ(blames[1].most, 2);
  // Of 1000 waited 900 are rank 2's, 100 rank 1's own; half of it is exposed.
  ASSERT_EQ(blames[1].parts.size(), 2u);
  EXPECT_EQ(blames[1].parts[0].blamed, 1);
  EXPECT_EQ(blames[1].parts[0].exposed_ns, 50);
  EXPECT_EQ(blames[1].parts[1].blamed, 2);
  EXPECT_EQ(blames[1].parts[1].exposed_ns, 450);
}

RankFacts stepped(const std::vector<int64_t>& durations_ms) {
  RankFacts rank = hand_made_rank(0, 1);
  int64_t time = 0;
  for (size_t i = 0; i < durations_ms.size(); ++i) {
    add_step(rank, static_cast<int32_t>(i), time, durations_ms[i] * kMs).device.compute_ns =
        8 * kMs;
    rank.steps.back().kernels = 100;
    time += durations_ms[i] * kMs;
  }
  return rank;
}

TEST(Outliers, AStepWithAllocatorCallsIsExplainedByThem) {
  RankFacts rank = stepped({10, 10, 11, 10, 30, 10});
  StepFacts& slow = rank.steps[4];
  slow.idle_by_cause[static_cast<size_t>(IdleCause::kHostSync)] = 19 * kMs;
  slow.allocator_ns = 18 * kMs;
  slow.allocator_calls = 12;
  const JobFacts job = measure_job({rank}, {}, {});
  ASSERT_EQ(job.outliers.size(), 1u);
  EXPECT_EQ(job.outliers[0].step_index, 4);
  EXPECT_EQ(job.outliers[0].excess_ns, 20 * kMs);
  EXPECT_EQ(job.outliers[0].cause, "allocator");
  EXPECT_NE(job.outliers[0].evidence.find("12 calls"), std::string::npos);
}

TEST(Outliers, TheSameKernelsSlowerAreALowerClock) {
  RankFacts rank = stepped({10, 10, 10, 20, 10});
  rank.steps[3].device.compute_ns = 18 * kMs;
  const JobFacts job = measure_job({rank}, {}, {});
  ASSERT_EQ(job.outliers.size(), 1u);
  EXPECT_EQ(job.outliers[0].cause, "compute");
  EXPECT_NE(job.outliers[0].evidence.find("same number of kernels"), std::string::npos);
}

TEST(Outliers, TheFirstRecordedStepIsToldApart) {
  const JobFacts job = measure_job({stepped({25, 10, 10, 10, 10})}, {}, {});
  ASSERT_EQ(job.outliers.size(), 1u);
  EXPECT_EQ(job.outliers[0].cause, "first step");
}

TEST(Outliers, NoCauseIsMadeUp) {
  const JobFacts job = measure_job({stepped({10, 10, 10, 25, 10})}, {}, {});
  ASSERT_EQ(job.outliers.size(), 1u);
  EXPECT_EQ(job.outliers[0].cause, "unknown");
}

TEST(Outliers, EvenOrFewStepsHaveNone) {
  EXPECT_TRUE(measure_job({stepped({10, 10, 11, 10, 10})}, {}, {}).outliers.empty());
  EXPECT_TRUE(measure_job({stepped({10, 30, 10})}, {}, {}).outliers.empty());
  // Steps that differ much by nature.
  EXPECT_TRUE(measure_job({stepped({10, 16, 11, 18, 13, 19})}, {}, {}).outliers.empty());
}

}  // namespace
}  // namespace vitrine
