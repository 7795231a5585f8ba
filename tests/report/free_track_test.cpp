// The tree finds the track that looking through all of them would find.
#include "report/free_track.h"

#include <gtest/gtest.h>

#include <random>

namespace vitrine {
namespace {

TEST(FreeTrack, IsTheFirstThatEndsInTime) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    FreeTrack tree;
    std::vector<int64_t> ends;
    int64_t start = -100;
    for (int i = 0; i < 300; ++i) {
      start += random() % 4;
      const int64_t end = start + random() % (round + 1);
      size_t track = 0;
      while (track < ends.size() && ends[track] > start) ++track;
      if (track == ends.size()) ends.push_back(0);
      ends[track] = end;
      ASSERT_EQ(tree.take(start, end), track);
      ASSERT_EQ(tree.tracks(), ends.size());
    }
  }
}

TEST(FreeTrack, DeepNestingIsNoTrouble) {
  FreeTrack tree;
  constexpr size_t kDeep = 300'000;  // looking through all takes minutes
  for (size_t i = 0; i < kDeep; ++i)
    ASSERT_EQ(tree.take(static_cast<int64_t>(i), static_cast<int64_t>(2 * kDeep - i)), i);
}

}  // namespace
}  // namespace vitrine
