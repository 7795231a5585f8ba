// How tiles of a product are shared: every step of every tile once, and no wait that could hang.
#include "ops/gpu/wgmma_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace vitrine::gpu {
namespace {

struct Problem {
  int rows, columns, steps, workers;
};

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const int rows : {1, 2, 7, 8, 9, 70}) {
    for (const int columns : {1, 3, 6, 35}) {
      for (const int steps : {1, 2, 24, 256}) {
        for (const int workers : {1, 2, 66}) all.push_back({rows, columns, steps, workers});
      }
    }
  }
  return all;
}

TEST(WgmmaSchedule, DoesEveryStepOfEveryTileOnce) {
  for (const auto& [rows, columns, steps, workers] : problems()) {
    for (const bool split : {false, true}) {
      const auto schedule = TileSchedule::make(rows, columns, steps, workers, split);
      std::vector<int> times(static_cast<size_t>(rows * columns * steps));
      for (int worker = 0; worker < workers; ++worker) {
        for (TileParts parts(schedule, worker); parts.more(); parts.next()) {
          const TilePart part = parts.part();
          ASSERT_LT(part.begin, part.end);
          ASSERT_LE(part.end, steps);
          ASSERT_TRUE(part.row < rows && part.column < columns);
          const int first = (part.row * columns + part.column) * steps;
          for (int step = part.begin; step < part.end; ++step) {
            ++times[static_cast<size_t>(first + step)];
          }
        }
      }
      EXPECT_EQ(times, std::vector<int>(times.size(), 1));
    }
  }
}

// A worker's part that does not begin its tile is its first of the tail, one at most, and ends
// where the owner below looks for it: so there is one place for it in scratch, and the owner never
// waits for work that comes after a wait.
TEST(WgmmaSchedule, LeavesOnePartAWorkerAndFirst) {
  for (const auto& [rows, columns, steps, workers] : problems()) {
    const auto schedule = TileSchedule::make(rows, columns, steps, workers, true);
    for (int worker = 0; worker < workers; ++worker) {
      int whole = 0, left = 0, owned = 0;
      for (TileParts parts(schedule, worker); parts.more(); parts.next()) {
        const TilePart part = parts.part();
        if (part.begin > 0) {
          EXPECT_EQ(owned, 0);
          ++left;
        } else if (part.end < steps) {
          ++owned;
          int missing = steps - part.end;
          for (int other = worker + 1; missing > 0; ++other) {
            ASSERT_LT(other, workers);
            missing -= schedule.tail_begin(other + 1) - schedule.tail_begin(other);
          }
        } else {
          ++whole;
        }
      }
      EXPECT_LE(left, 1);
      EXPECT_LE(owned, 1);
    }
  }
}

TEST(WgmmaSchedule, SharesTheTailEvenly) {
  // The gradient of gate and up in a model of 1.5B: 420 tiles for 66 workers.
  const auto schedule = TileSchedule::make(70, 6, 256, 66, true);
  EXPECT_EQ(schedule.whole, 396);
  for (int worker = 0; worker < 66; ++worker) {
    const int work = schedule.tail_begin(worker + 1) - schedule.tail_begin(worker);
    EXPECT_NEAR(work, 24 * 256 / 66.0, 1);
  }
  // Few tiles in the last wave would be cut in many parts: a wave more is shared.
  EXPECT_EQ(TileSchedule::make(6, 35, 256, 66, true).whole, 132);
}

}  // namespace
}  // namespace vitrine::gpu
