// The sample order: a permutation for any size, the same whatever the world size.
#include "data/sampler.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

namespace vitrine {
namespace {

std::vector<int64_t> order(int64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(permutation(i));
  return values;
}

TEST(Sampler, IsABijectionForEverySize) {
  for (const int64_t size :
       {1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 100, 127, 1000, 1024, 1025, 65537}) {
    for (const uint64_t epoch : {0, 1, 2}) {
      std::vector<bool> seen(static_cast<size_t>(size), false);
      for (const int64_t value : order(size, 7, epoch)) {
        ASSERT_TRUE(value >= 0 && value < size) << size;
        ASSERT_FALSE(seen[static_cast<size_t>(value)]) << size << " twice " << value;
        seen[static_cast<size_t>(value)] = true;
      }
    }
  }
}

TEST(Sampler, ReachesAllOrdersOfThreeAboutEquallyOften) {
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kEpochs = 6000;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[order(3, 1, epoch)];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [values, count] : counts) EXPECT_NEAR(count, kEpochs / 6, 150);
}

TEST(Sampler, DiffersByEpochAndSeed) {
  EXPECT_NE(order(1000, 1, 0), order(1000, 1, 1));
  EXPECT_NE(order(1000, 1, 0), order(1000, 2, 0));
  EXPECT_EQ(order(1000, 1, 5), order(1000, 1, 5));
}

TEST(Sampler, LeavesNoTraceOfTheIndex) {
  // Of a random permutation, one value in n stays in place on average, and neighbours part.
  const std::vector<int64_t> values = order(10000, 3, 0);
  int fixed = 0, neighbours = 0;
  double correlation = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    fixed += values[i] == static_cast<int64_t>(i);
    if (i > 0) neighbours += std::abs(values[i] - values[i - 1]) == 1;
    correlation +=
        (static_cast<double>(i) / 1e4 - 0.5) * (static_cast<double>(values[i]) / 1e4 - 0.5);
  }
  EXPECT_LT(fixed, 8);
  EXPECT_LT(neighbours, 12);
  EXPECT_LT(std::abs(correlation / 1e4 * 12), 0.04);
}

TEST(Sampler, AnyWorldSizeReadsTheSameOrderAndEachSampleOnceAnEpoch) {
  constexpr int64_t kSize = 53, kGlobalBatch = 12;
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 5 * kGlobalBatch; ++i)
    expected.push_back(sample_place(kSize, 9, i).sample);
  EXPECT_EQ(std::set<int64_t>(expected.begin(), expected.begin() + kSize).size(), 53u);
  for (const int64_t world : {1, 2, 3, 4, 6, 12}) {
    std::vector<int64_t> gathered(expected.size(), -1);
    const int64_t local = kGlobalBatch / world;
    for (int64_t rank = 0; rank < world; ++rank) {
      for (int64_t step = 0; step < 5; ++step) {
        for (int64_t i = 0; i < local; ++i) {
          const int64_t global = step * kGlobalBatch + rank * local + i;
          ASSERT_EQ(gathered[static_cast<size_t>(global)], -1);
          gathered[static_cast<size_t>(global)] = sample_place(kSize, 9, global).sample;
        }
      }
    }
    EXPECT_EQ(gathered, expected) << world;
  }
}

TEST(Sampler, WorksOnHugeDatasets) {
  const Permutation permutation(int64_t{1} << 60, 1, 0);
  std::set<int64_t> values;
  for (int64_t i = 0; i < 1000; ++i) values.insert(permutation(i));
  EXPECT_EQ(values.size(), 1000u);
}

}  // namespace
}  // namespace vitrine
