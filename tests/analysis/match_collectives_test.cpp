// Collectives matched across ranks, clocks, waits and bandwidths, on hand-made facts.
#include <gtest/gtest.h>

#include "analysis/align_uses.h"
#include "analysis/hand_made_job.h"
#include "analysis/statistics.h"
#include "machines/accelerators.h"

namespace vitrine {
namespace {

TEST(MatchCollectives, WaitingIsToldFromTransferAtTheLatestArrival) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  add_use(a, "all_reduce", 100 * kUs, 400 * kUs, 64 << 20);
  add_use(b, "all_reduce", 300 * kUs, 401 * kUs, 64 << 20);
  a.collectives[0].exposed_ns = 250 * kUs;
  const JobFacts job = measure_job({b, a}, {}, {});
  ASSERT_EQ(job.collectives.size(), 1u);
  const MatchedCollective& c = job.collectives[0];
  EXPECT_TRUE(c.whole);
  ASSERT_EQ(c.members.size(), 2u);
  // One common call makes the clocks: rank 1's are 1 us behind, so it came at 299 us.
  EXPECT_EQ(job.clocks[1].offset_ns, -1 * kUs);
  EXPECT_EQ(c.members[0].rank_index, 0);
  EXPECT_EQ(c.members[0].wait_ns, 199 * kUs);
  EXPECT_EQ(c.members[1].wait_ns, 0);
  EXPECT_EQ(c.transfer_ns, 101 * kUs);
  EXPECT_EQ(c.arrival_skew_ns, 199 * kUs);
  EXPECT_EQ(c.end_skew_ns, 0);
  // 250 us are exposed; the transfer (101 us) comes last, so 149 us of the wait are.
  EXPECT_EQ(c.members[0].exposed_wait_ns, 149 * kUs);
  EXPECT_EQ(job.waits[0].exposed_wait_ns, 149 * kUs);
  EXPECT_EQ(job.waits[0].exposed_transfer_ns, 101 * kUs);
  ASSERT_EQ(job.waits[0].waited_for.size(), 1u);
  EXPECT_EQ(job.waits[0].waited_for[0], std::make_pair(1, 149 * kUs));
  // 64 MiB in 101 us; 2 (n - 1) / n is 1 for two ranks.
  EXPECT_NEAR(c.bus_bytes_per_s, 67108864.0 / 101e-6, 1);
  ASSERT_EQ(job.collective_kinds.size(), 1u);
  EXPECT_EQ(job.collective_kinds[0].expected_from, "NVLink of NVIDIA H200");
  EXPECT_EQ(job.collective_kinds[0].last_arrivals.at(0), std::make_pair(1, int64_t{1}));
}

TEST(MatchCollectives, ComputeInsideTheWaitHidesIt) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  add_use(a, "all_reduce", 0, 1000 * kUs).exposed_ns = 700 * kUs;
  add_use(b, "all_reduce", 800 * kUs, 1000 * kUs);
  a.work.push_back({0, 100 * kUs, 100 * kUs, Phase::kBackward, -1});
  a.work.push_back({800 * kUs, 1000 * kUs, 200 * kUs, Phase::kBackward, -1});
  const JobFacts job = measure_job({a, b}, {}, {});
  EXPECT_EQ(job.collectives.at(0).members.at(0).exposed_wait_ns, 700 * kUs);
}

// Twelve all-reduces of changing sizes and distances, then a broadcast.
RankFacts busy_rank(int32_t rank, int64_t clock, int32_t first, int32_t last, int32_t lost = -1) {
  RankFacts facts = hand_made_rank(rank, 2);
  int64_t time = 0;
  for (int32_t i = 0; i < 60; ++i) {
    time += (3 + i * i % 7) * kMs;
    const int64_t late = (i % 3 == rank ? 40 : 5) * kUs;
    if (i < first || i >= last || i == lost) continue;
    const int64_t bytes = (1 + i % 4) << 20;
    add_use(facts, "all_reduce", time + late - clock, time + 500 * kUs - clock, bytes);
  }
  return facts;
}

TEST(MatchCollectives, WindowsThatBeginAndEndElsewhereAreLinedUp) {
  const JobFacts job = measure_job({busy_rank(0, 0, 0, 50), busy_rank(1, 0, 3, 60)}, {}, {});
  EXPECT_EQ(job.collectives.size(), 47u);
  for (const MatchedCollective& c : job.collectives) EXPECT_EQ(c.end_skew_ns, 0);
  EXPECT_EQ(job.collective_kinds.at(0).unmatched, 3 + 10);
}

TEST(MatchCollectives, AShiftedClockIsRecovered) {
  const int64_t shift = 7'123'456'789;  // two calls' distances are far shorter
  RankFacts late = busy_rank(1, shift, 3, 60);
  const JobFacts job = measure_job({busy_rank(0, 0, 0, 50), late}, {}, {});
  EXPECT_EQ(job.clocks[1].offset_ns, shift);
  EXPECT_EQ(job.clocks[1].uncertainty_ns, 0);
  EXPECT_EQ(job.clocks[1].samples, 47);
  EXPECT_EQ(job.clocks[1].method, "collectives end together");
}

TEST(MatchCollectives, AnchorsOfTheWallClockComeFirst) {
  RankFacts a = busy_rank(0, 0, 0, 60), b = busy_rank(1, 5 * kMs, 0, 60);
  a.wall_anchor_ns = 1'790'000'000'000'000'000;
  b.wall_anchor_ns = a.wall_anchor_ns + 5 * kMs - 2 * kUs;
  const JobFacts job = measure_job({a, b}, {}, {});
  EXPECT_EQ(job.clocks[1].offset_ns, 5 * kMs);
  EXPECT_EQ(job.collectives.size(), 60u);
}

TEST(MatchCollectives, ClocksReachRanksThroughOthers) {
  RankFacts ranks[3];
  for (int32_t r = 0; r < 3; ++r) {
    ranks[r] = hand_made_rank(r, 3);
    ranks[r].groups = {{"1", "", {0, 1}, 2}, {"2", "", {1, 2}, 2}};
  }
  for (int64_t i = 1; i <= 5; ++i) {
    add_use(ranks[0], "all_reduce", i * kMs, i * kMs + 10 * kUs).group = 0;
    add_use(ranks[1], "all_reduce", i * kMs, i * kMs + 15 * kUs).group = 0;
    add_use(ranks[1], "all_reduce", i * kMs + 400 * kUs, i * kMs + 500 * kUs).group = 1;
    add_use(ranks[2], "all_reduce", i * kMs + 400 * kUs, i * kMs + 507 * kUs).group = 1;
  }
  const JobFacts job = measure_job({ranks[0], ranks[1], ranks[2]}, {}, {});
  EXPECT_EQ(job.clocks[1].offset_ns, -5 * kUs);
  EXPECT_EQ(job.clocks[2].offset_ns, -12 * kUs);
}

TEST(MatchCollectives, ACallLostInTheMiddleDoesNotSpoilTheRest) {
  const JobFacts job = measure_job({busy_rank(0, 0, 0, 60), busy_rank(1, 0, 0, 60, 20)}, {}, {});
  EXPECT_EQ(job.collectives.size(), 59u);
  for (const MatchedCollective& c : job.collectives) EXPECT_EQ(c.end_skew_ns, 0);
}

TEST(MatchCollectives, RecordedSequenceNumbersDecide) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  for (int64_t i = 0; i < 4; ++i) {
    add_use(a, "all_reduce", i * kMs, i * kMs + 50 * kUs).sequence = 100 + i;
    add_use(b, "all_reduce", i * kMs, i * kMs + 50 * kUs).sequence = 102 + i;
  }
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_EQ(job.collectives.size(), 2u);
  EXPECT_EQ(job.collectives[0].sequence, 102);
  EXPECT_EQ(job.clocks[1].offset_ns, 2 * kMs);
}

TEST(MatchCollectives, GroupsWithTheSameRanksButOtherNamesAreOne) {
  RankFacts a = hand_made_rank(0, 4), b = hand_made_rank(1, 4);
  a.groups = {{"12", "TENSOR_MODEL_PARALLEL_GROUP", {0, 1}, 2}};
  b.groups = {{"9", "", {2, 3}, 2}, {"17", "TENSOR_MODEL_PARALLEL_GROUP", {0, 1}, 2}};
  add_use(a, "all_reduce", 0, 100 * kUs);
  add_use(b, "all_reduce", 50 * kUs, 100 * kUs).group = 1;
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_EQ(job.collectives.size(), 1u);
  EXPECT_TRUE(job.collectives[0].whole);
}

TEST(MatchCollectives, AMissingRankLeavesTheCollectiveIncomplete) {
  RankFacts a = hand_made_rank(0, 3), b = hand_made_rank(2, 3);
  add_use(a, "all_reduce", 0, 100 * kUs, 1 << 20);
  add_use(b, "all_reduce", 50 * kUs, 100 * kUs, 1 << 20);
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_EQ(job.collectives.size(), 1u);
  EXPECT_FALSE(job.collectives[0].whole);
  EXPECT_EQ(job.collectives[0].bus_bytes_per_s, 0);
  EXPECT_FALSE(job.warnings.empty());
}

TEST(MatchCollectives, ASendPairsWithItsReceiveThoughItEndedLongBefore) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  for (int32_t i = 0; i < 4; ++i) {
    add_use(a, "send", i * kMs, i * kMs + 30 * kUs, 0, i / 2).peer = 1;
    add_use(b, "receive", 2 * i * kMs + 10 * kUs, 2 * i * kMs + 40 * kUs, 0, i / 2).peer = 0;
  }
  // A receive from before the window of the sender.
  add_use(b, "receive", -5 * kMs, -4 * kMs, 0, -1).peer = 0;
  std::rotate(b.collectives.begin(), b.collectives.end() - 1, b.collectives.end());
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_EQ(job.collectives.size(), 4u);
  for (const MatchedCollective& c : job.collectives) {
    EXPECT_EQ(c.name, "send");
    EXPECT_EQ(c.ranks, (std::vector<int32_t>{0, 1}));
    EXPECT_LT(c.members[0].start_ns, c.members[1].end_ns);
    EXPECT_GE(c.step, 0);
  }
}

TEST(MatchCollectives, AReceiveWaitsForItsSend) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  add_use(a, "send", 900 * kUs, 930 * kUs).peer = 1;
  add_use(b, "receive", 0, 935 * kUs).peer = 0;
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_EQ(job.collectives.size(), 1u);
  EXPECT_EQ(job.waits[1].exposed_wait_ns, 900 * kUs);
  EXPECT_EQ(job.waits[0].exposed_wait_ns, 0);
}

TEST(MatchCollectives, KernelsWithoutGroupAreAllToAllWhenAllRanksLeaveTogether) {
  std::vector<RankFacts> ranks;
  for (int32_t r = 0; r < 4; ++r) {
    ranks.push_back(hand_made_rank(r, 4));
    ranks.back().groups.clear();
    for (int64_t i = 0; i < 3; ++i) {
      CollectiveUse& use =
          add_use(ranks.back(), "send_receive", i * kMs + r * 10 * kUs, i * kMs + 100 * kUs + r);
      use.group = -1;
    }
  }
  const JobFacts job = measure_job(ranks, {}, {});
  ASSERT_EQ(job.collectives.size(), 3u);
  EXPECT_EQ(job.collectives[0].name, "all_to_all");
  EXPECT_TRUE(job.collectives[0].whole);

  for (CollectiveUse& use : ranks[2].collectives) use.start_ns *= 3;
  const JobFacts apart = measure_job(ranks, {}, {});
  EXPECT_TRUE(apart.collectives.empty());
  EXPECT_FALSE(apart.warnings.empty());
}

TEST(MatchCollectives, ComputeBesideAWaitIsFoundBehindShorterPieces) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  add_use(a, "all_reduce", 300 * kUs, 900 * kUs, 64 << 20);
  add_use(b, "all_reduce", 700 * kUs, 900 * kUs, 64 << 20);
  a.collectives[0].exposed_ns = 200 * kUs;
  // One long piece of compute covers the whole wait; two short ones that began later ended before.
  a.work = {{0, 1000 * kUs, 1000 * kUs, Phase::kForward},
            {100 * kUs, 150 * kUs, 50 * kUs, Phase::kBackward},
            {200 * kUs, 250 * kUs, 50 * kUs, Phase::kForward}};
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_EQ(job.collectives.size(), 1u);
  EXPECT_EQ(job.collectives[0].members[0].wait_ns, 400 * kUs);
  EXPECT_EQ(job.collectives[0].members[0].exposed_wait_ns, 0);
}

TEST(AlignCollectives, OfVeryUnequalLengthsTakesBoundedTime) {
  std::vector<AlignedUse> reference(200'000), uses(300);
  for (size_t i = 0; i < reference.size(); ++i) {
    reference[i].end_ns = static_cast<int64_t>(i * i % 977) * kMs + static_cast<int64_t>(i) * kMs;
  }
  for (size_t i = 0; i < uses.size(); ++i) uses[i] = reference[i + 2000];
  const std::vector<int64_t> places = align_collectives(reference, uses, true);
  EXPECT_EQ(places.front(), 2000);
  EXPECT_EQ(places.back(), 2299);
  EXPECT_EQ(align_receives(reference, uses, false).size(), uses.size());
}

TEST(MatchCollectives, ASecondFileOfARankIsLeftOut) {
  const JobFacts job = measure_job({hand_made_rank(0, 1), hand_made_rank(0, 1)}, {}, {});
  EXPECT_EQ(job.ranks.size(), 1u);
  ASSERT_EQ(job.warnings.size(), 1u);
  EXPECT_NE(job.warnings[0].find("Rank 0"), std::string::npos);
}

TEST(MatchCollectives, NothingReadGivesNothing) {
  const JobFacts job = measure_job({}, {}, {});
  EXPECT_TRUE(job.ranks.empty());
  EXPECT_TRUE(job.collectives.empty());
}

TEST(Statistics, AreThoseOfTheTextbook) {
  EXPECT_EQ(median(std::vector<int64_t>{5, 1, 9}), 5);
  EXPECT_EQ(median(std::vector<int64_t>{}), 0);
  EXPECT_EQ(median_deviation({1, 1, 2, 2, 4, 6, 9}), 1);
  EXPECT_NEAR(binomial_tail(8, 5, 1.0 / 8), 0.00123006, 1e-8);
  EXPECT_NEAR(binomial_tail(3, 3, 0.5), 0.125, 1e-12);
  EXPECT_EQ(binomial_tail(3, 0, 0.5), 1);
}

TEST(Accelerators, AreFoundByTheNamesThatDriversReport) {
  ASSERT_NE(find_accelerator("NVIDIA H200"), nullptr);
  EXPECT_EQ(find_accelerator("NVIDIA H200")->link_bytes_per_s, 450e9);
  EXPECT_STREQ(find_accelerator("NVIDIA H100 80GB HBM3")->name, "NVIDIA H100 SXM");
  EXPECT_STREQ(find_accelerator("NVIDIA A100-SXM4-80GB")->name, "NVIDIA A100 80GB");
  EXPECT_STREQ(find_accelerator("Tesla V100-SXM2-32GB")->name, "NVIDIA V100 SXM2 32GB");
  EXPECT_EQ(find_accelerator("NVIDIA A100-PG509-200"), nullptr);
  EXPECT_EQ(find_accelerator(""), nullptr);
  const Accelerator& h200 = *find_accelerator("NVIDIA H200");
  for (const auto& [mebibytes, measured] : {std::pair{16, 169e9}, {256, 275e9}, {1024, 315e9}}) {
    const int64_t bytes = int64_t{mebibytes} << 20;
    EXPECT_NEAR(expected_bus_bandwidth(h200, "all_reduce", bytes), measured, 0.15 * measured);
  }
  EXPECT_EQ(
      expected_bus_bandwidth(*find_accelerator("NVIDIA GeForce RTX 4090"), "all_reduce", 1 << 24),
      0);
}

}  // namespace
}  // namespace vitrine
