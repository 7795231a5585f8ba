// Pipelines as discrete events, against the bubble rates of Zero Bubble Pipeline Parallelism (Qi et
// al., ICLR 2024, table 5; times of forward, backward, weight gradient and transfer from its
// appendix, in milliseconds).
#include "plan/simulate.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace vitrine {
namespace {

struct Published {
  const char* model;
  int stages, micros;
  double forward, backward, weight, transfer;
  double one_f_one_b, zb_h1, zb_h2;  // bubble rates, printed with four digits
};
constexpr Published kTable[] = {
    {"1.5B", 8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083},
    {"1.5B", 8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.0837},
    {"1.5B", 8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444},
    {"6.2B", 8, 24, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.1323, 0.0698},
    {"6.2B", 8, 32, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.1045, 0.0559},
    {"6.2B", 8, 64, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0554, 0.0294},
};

PipelineTimes times_of(const Published& row, bool apart) {
  PipelineTimes times;
  times.size = {row.stages, 1, row.micros};
  times.transfer_ns = row.transfer;
  const ChunkTimes chunk = apart ? ChunkTimes{row.forward, row.backward, row.weight}
                                 : ChunkTimes{row.forward, row.backward + row.weight, 0};
  times.chunk.assign(static_cast<size_t>(row.stages), chunk);
  return times;
}

template <typename Order>
double rate(const Published& row, bool apart, Order&& order) {
  const PipelineTimes times = times_of(row, apart);
  PipelineOrders orders;
  for (int stage = 0; stage < row.stages; ++stage) orders.push_back(order(times.size, stage));
  return simulate_pipeline(times, orders).bubble_rate();
}

// Half of the last printed digit.
constexpr double kPrinted = 0.5e-4 + 1e-9;

TEST(Simulate, BubbleRatesOfTheZeroBubblePaperToThePrintedDigits) {
  for (const Published& row : kTable) {
    SCOPED_TRACE(std::string(row.model) + " with " + std::to_string(row.micros));
    EXPECT_NEAR(rate(row, false, one_f_one_b_order), row.one_f_one_b, kPrinted);
    const auto zero_bubble = [](bool twice) {
      return
          [twice](PipelineSize size, int stage) { return zero_bubble_order(size, stage, twice); };
    };
    EXPECT_NEAR(rate(row, true, zero_bubble(false)), row.zb_h1, kPrinted);
    EXPECT_NEAR(rate(row, true, zero_bubble(true)), row.zb_h2, kPrinted);
  }
}

TEST(Simulate, WithoutTransfersTheBubbleIsTheTextbooks) {
  PipelineTimes times;
  times.size = {4, 1, 12};
  times.chunk.assign(4, {10, 20, 0});
  for (const auto order : {gpipe_order, one_f_one_b_order}) {
    PipelineOrders orders;
    for (int stage = 0; stage < 4; ++stage) orders.push_back(order(times.size, stage));
    // (p - 1) / (m + p - 1).
    EXPECT_NEAR(simulate_pipeline(times, orders).bubble_rate(), 3.0 / 15, 1e-12);
  }
  times.size = {4, 2, 12};
  times.chunk.assign(8, {5, 10, 0});
  PipelineOrders interleaved;
  for (int stage = 0; stage < 4; ++stage) {
    interleaved.push_back(interleaved_order(times.size, stage));
  }
  // (p - 1) / v against m.
  EXPECT_NEAR(simulate_pipeline(times, interleaved).bubble_rate(), 1.5 / 13.5, 1e-12);
}

TEST(Simulate, OrdersKeepAsManyMicroBatchesAliveAsTheirPapersSay) {
  const PipelineSize size{8, 1, 32};
  for (int stage = 0; stage < 8; ++stage) {
    EXPECT_EQ(most_in_flight(gpipe_order(size, stage)), 32);
    EXPECT_EQ(most_in_flight(one_f_one_b_order(size, stage)), 8 - stage);
    EXPECT_EQ(most_in_flight(zero_bubble_order(size, stage, false)), 8);
    EXPECT_EQ(most_in_flight(zero_bubble_order(size, stage, true)), 15);
  }
}

TEST(Simulate, OrdersThatWaitForEachOtherAreRefusedWithThePlace) {
  PipelineTimes times;
  times.size = {2, 1, 1};
  times.chunk.assign(2, {1, 1, 0});
  PipelineOrders orders = {{{PipelineWork::kBackward, 0, 0}, {PipelineWork::kForward, 0, 0}},
                           one_f_one_b_order(times.size, 1)};
  try {
    simulate_pipeline(times, orders);
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("stage 0"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace vitrine
