// The batch triple: what DeepSpeed derives, and what is said when sizes do not divide.
#include "config/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace vitrine {
namespace {

using testing::HasSubstr;
using Optional = std::optional<int64_t>;

std::vector<int64_t> solved(Optional total, Optional micro, Optional accumulation, int64_t ranks) {
  const Batch3 batch = solve_batch({total, micro, accumulation}, ranks);
  return {batch.train_batch_size, batch.micro_batch, batch.accumulation};
}

std::string error(Optional total, Optional micro, Optional accumulation, int64_t ranks) {
  try {
    solve_batch({total, micro, accumulation}, ranks);
  } catch (const ConfigError& caught) {
    return caught.what();
  }
  return "";
}

TEST(BatchTriple, DerivesWhatIsMissing) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(solved(32, 2, 4, 4), (V{32, 2, 4}));
  EXPECT_EQ(solved(32, 2, {}, 4), (V{32, 2, 4}));
  EXPECT_EQ(solved(32, {}, 4, 4), (V{32, 2, 4}));
  EXPECT_EQ(solved({}, 2, 4, 4), (V{32, 2, 4}));
  EXPECT_EQ(solved(32, {}, {}, 4), (V{32, 8, 1}));
  EXPECT_EQ(solved({}, 2, {}, 4), (V{8, 2, 1}));
}

TEST(BatchTriple, NeedsATotalOrAMicroBatch) {
  EXPECT_THAT(error({}, {}, {}, 4), HasSubstr("train_micro_batch_size_per_gpu"));
  EXPECT_THAT(error({}, {}, 2, 4), HasSubstr("give train_batch_size or"));
}

TEST(BatchTriple, RefusesSizesBelowOne) {
  EXPECT_THAT(error(0, {}, {}, 4), HasSubstr("train_batch_size: has to be at least 1, got 0"));
  EXPECT_THAT(error({}, -2, {}, 4), HasSubstr("got -2"));
  EXPECT_THAT(error(8, {}, 0, 4), HasSubstr("gradient_accumulation_steps: has to be at least 1"));
}

TEST(BatchTriple, NamesTheNearestSizesThatDivide) {
  EXPECT_THAT(
      error(32, {}, {}, 6),
      testing::AllOf(HasSubstr("30 or 36"), HasSubstr("it divides on 1, 2, 4, 8 data ranks")));
  EXPECT_THAT(error(32, {}, 1, 6), HasSubstr("30 or 36"));
  EXPECT_THAT(error(20, 8, {}, 2), HasSubstr("16 or 32"));
  EXPECT_THAT(error(3, {}, {}, 4), HasSubstr("The nearest that are: 4"));
  EXPECT_THAT(error(32, 2, 3, 4),
              HasSubstr("= 24. Set train_batch_size to 24 or "
                        "gradient_accumulation_steps to 4"));
}

}  // namespace
}  // namespace vitrine
