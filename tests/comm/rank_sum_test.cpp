// Rank-order sums against plain arithmetic, bit by bit.
#include "comm/rank_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace vitrine {
namespace {

// The definition, one element at a time, with core's conversions.
template <typename T, typename Accumulator, typename Load, typename Store>
std::vector<T> plain_sum(const std::vector<std::vector<T>>& pieces, Load load, Store store) {
  std::vector<T> out(pieces[0].size());
  for (size_t i = 0; i < out.size(); ++i) {
    Accumulator total = load(pieces[0][i]);
    for (size_t r = 1; r < pieces.size(); ++r) {
      total = static_cast<Accumulator>(total + load(pieces[r][i]));
    }
    out[i] = store(total);
  }
  return out;
}

template <typename T>
std::vector<T> rank_sum(const std::vector<std::vector<T>>& pieces, DType dtype) {
  std::vector<T> out(pieces[0].size());
  std::vector<const void*> pointers;
  for (const auto& piece : pieces) pointers.push_back(piece.data());
  rank_order_sum(pointers, out.data(), static_cast<int64_t>(out.size()), dtype);
  return out;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(RankSum, AddsInRankOrderInFp32) {
  // (1e8 + -1e8) + 1 is 1; every order that adds 1 to 1e8 first loses it.
  EXPECT_EQ(rank_sum<float>({{1e8f}, {-1e8f}, {1.f}}, DType::kF32)[0], 1.f);
  EXPECT_EQ(rank_sum<float>({{1.f}, {1e8f}, {-1e8f}}, DType::kF32)[0], 0.f);
}

TEST(RankSum, RoundsBf16OnceAtTheEnd) {
  // 256 + 1 + 1: bf16 has 8 bits, so a sum rounded at each step would stay at 256.
  const auto bits = [](float x) { return to_bf16(x); };
  const auto total = rank_sum<bf16>({{bits(256)}, {bits(1)}, {bits(1)}}, DType::kBF16);
  EXPECT_EQ(to_float(total[0]), 258.f);
}

TEST(RankSum, EqualsPlainArithmeticForEveryDtypeAndRankCount) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t ranks : {1u, 2u, 3u, 5u}) {
    for (const size_t count : {1u, 7u, 2048u, 5001u}) {
      std::vector<std::vector<float>> f(ranks, std::vector<float>(count));
      for (auto& piece : f) {
        for (auto& x : piece) x = normal(random);
      }
      std::vector<std::vector<bf16>> b(ranks);
      std::vector<std::vector<double>> d(ranks);
      std::vector<std::vector<int32_t>> n(ranks);
      std::vector<std::vector<uint8_t>> u(ranks);
      for (size_t r = 0; r < ranks; ++r) {
        for (const float x : f[r]) {
          b[r].push_back(to_bf16(x));
          d[r].push_back(static_cast<double>(x) / 3);
          n[r].push_back(static_cast<int32_t>(x * 1e6f));
          u[r].push_back(static_cast<uint8_t>(static_cast<int>(x * 100) & 255));
        }
      }
      const auto same = [](auto x) { return x; };
      EXPECT_TRUE(same_bits(rank_sum(f, DType::kF32), plain_sum<float, float>(f, same, same)));
      EXPECT_TRUE(same_bits(rank_sum(d, DType::kF64), plain_sum<double, double>(d, same, same)));
      EXPECT_TRUE(same_bits(rank_sum(n, DType::kI32), plain_sum<int32_t, int32_t>(n, same, same)));
      EXPECT_TRUE(same_bits(rank_sum(u, DType::kU8), plain_sum<uint8_t, uint8_t>(u, same, same)));
      EXPECT_TRUE(same_bits(
          rank_sum(b, DType::kBF16),
          plain_sum<bf16, float>(
              b, [](bf16 x) { return to_float(x); }, [](float x) { return to_bf16(x); })));
    }
  }
}

TEST(RankSum, TreatsEveryF16LikeTheConversionsOfCore) {
  std::vector<f16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  for (const float other : {0.f, -0.f, 1.f, -3.5f, 0x1p-24f, 65504.f, 0x1.8p-15f}) {
    const std::vector<std::vector<f16>> pieces = {all, std::vector<f16>(all.size(), to_f16(other))};
    const auto expected = plain_sum<f16, float>(
        pieces, [](f16 x) { return to_float(x); }, [](float x) { return to_f16(x); });
    const auto got = rank_sum(pieces, DType::kF16);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(got[i].bits, expected[i].bits) << "element " << i << " plus " << other;
    }
  }
}

TEST(RankSum, MayWriteOverOneOfThePieces) {
  std::vector<float> a(5000, 1.f), b(5000, 2.f);
  const void* pieces[] = {a.data(), b.data()};
  rank_order_sum(pieces, b.data(), 5000, DType::kF32);
  EXPECT_EQ(b, std::vector<float>(5000, 3.f));
}

}  // namespace
}  // namespace vitrine
