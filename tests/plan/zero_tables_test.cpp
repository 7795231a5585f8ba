// The ZeRO papers' tables to their printed digits.
#include "plan/zero_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

// The paper rounds the column of 7.5 billion (41.25 to 41.3, 0.469 to 0.47) and cuts the others
// off.
TEST(ZeroTables, Table1OfZero) {
  struct Row {
    int64_t ranks;
    double billions[3], hundred[3], trillion[3];
  };
  const Row rows[] = {
      {1, {120, 120, 120}, {2048, 2048, 2048}, {16000, 16000, 16000}},
      {4, {52.5, 41.3, 30}, {896, 704, 512}, {7000, 5500, 4000}},
      {16, {35.6, 21.6, 7.5}, {608, 368, 128}, {4750, 2875, 1000}},
      {64, {31.4, 16.6, 1.88}, {536, 284, 32}, {4187, 2218, 250}},
      {256, {30.4, 15.4, 0.47}, {518, 263, 8}, {4046, 2054, 62.5}},
      {1024, {30.1, 15.1, 0.12}, {513, 257, 2}, {4011, 2013, 15.6}},
  };
  // Digits after the point as printed.
  const auto rounded = [](double value, double printed) {
    const double unit = printed < 2 ? 0.01 : 0.1;
    return std::fabs(std::round(value / unit + 1e-9) * unit - printed) < 1e-9;
  };
  const auto cut = [](double value, double printed) {
    const double unit = printed == std::floor(printed) ? 1 : 0.1;
    return std::fabs(std::floor(value / unit + 1e-9) * unit - printed) < 1e-9;
  };
  for (const Row& row : rows) {
    for (int stage = 1; stage <= 3; ++stage) {
      const auto gb = [&](double parameters) {
        return zero_state_bytes(parameters, row.ranks, stage) / 1e9;
      };
      EXPECT_TRUE(rounded(gb(7.5e9), row.billions[stage - 1])) << gb(7.5e9) << " " << row.ranks;
      EXPECT_TRUE(cut(gb(128e9), row.hundred[stage - 1])) << gb(128e9) << " " << row.ranks;
      EXPECT_TRUE(cut(gb(1e12), row.trillion[stage - 1])) << gb(1e12) << " " << row.ranks;
    }
  }
}

// Theoretical sizes of table 2, V100 with 32 GB, 64 data ranks, in billions.
TEST(ZeroTables, Table2OfZero) {
  EXPECT_EQ(format("%.1f", zero_most_parameters(32, 64, 0)), "2.0");
  EXPECT_EQ(format("%.1f", zero_most_parameters(32, 64, 1)), "7.6");
  EXPECT_EQ(format("%.1f", zero_most_parameters(32, 64, 2)), "14.4");
  EXPECT_EQ(format("%.0f", zero_most_parameters(32, 64, 3)), "128");
}

TEST(ZeroTables, RefuseOtherStages) {
  EXPECT_THROW(zero_state_bytes(1, 1, 4), ConfigError);
  EXPECT_THROW(zero_state_bytes(1, 0, 1), ConfigError);
}

// Figure 2a: parameters in 10^12; states, activations and checkpoints (batch 32 a node, sequence
// 1024) in TiB; working memory in GiB, a GPU with batch 4. K is 1024 for working memory's widths.
TEST(ZeroTables, Figure2aOfZeroInfinity) {
  struct Row {
    double layers, hidden, heads;
    const char *parameters, *states, *activations, *checkpoints, *weights, *working;
  };
  constexpr double kK = 1024, kGiB = 1 << 30, kTiB = kGiB * 1024;
  // The first row's working weights are printed as 1.95; 16 x (10 K)² is 1.56 GiB, and the other
  // four follow that formula.
  const Row rows[] = {
      {80, 10, 128, "0.10", "1.83", "2.03", "0.05", "1.56", "1.63"},
      {100, 20, 160, "0.50", "9.16", "3.91", "0.12", "6.25", "2.50"},
      {128, 25, 256, "1.01", "18.31", "7.13", "0.20", "9.77", "3.56"},
      {195, 64, 512, "10.05", "182.81", "24.38", "0.76", "64.00", "8.00"},
      {315, 160, 1024, "101.47", "1845.70", "88.59", "3.08", "400.00", "18.00"},
  };
  // Halves are rounded up in the figure (7.125, 1.625).
  const auto printed = [](double value) {
    return format("%.2f", std::floor(value * 100 + 0.5) / 100);
  };
  for (const Row& row : rows) {
    const InfinityShape s = {row.layers, row.hidden * kK, row.heads};
    EXPECT_EQ(printed(s.parameters() / 1e12), row.parameters);
    EXPECT_EQ(printed(s.state_bytes() / kTiB), row.states);
    EXPECT_EQ(printed(s.activations(64, 1024) / kTiB), row.activations);
    EXPECT_EQ(printed(s.checkpoints(32, 1024, 1) / kTiB), row.checkpoints);
    EXPECT_EQ(printed(s.working_weights() / kGiB), row.weights);
    EXPECT_EQ(printed(s.working_activations(4, 1024, 1) / kGiB), row.working);
  }
}

// Section 4: 70 GB/s for parameters and gradients at batch 1 and sequence 1024 on a card that
// reaches 70 TFLOP/s is 50 % or more; 90 % of the optimizer at batch 2 needs 1.5 TB/s.
TEST(ZeroTables, EfficiencyOfZeroInfinity) {
  EXPECT_GT(infinity_efficiency(1024, 70e9, 70e12), 0.5);
  EXPECT_NEAR(infinity_efficiency(2 * 1024 / 4.0, 1.5e12, 70e12), 0.916, 0.001);
}

}  // namespace
}  // namespace vitrine
