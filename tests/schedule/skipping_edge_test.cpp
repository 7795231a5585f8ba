// Values that skip blocks, over a cut between pipeline stages: both sides name them in one order.
#include <gtest/gtest.h>

#include "core/json.h"
#include "models/registry.h"
#include "schedule/action.h"

namespace vitrine {
namespace {

using Transfers = std::vector<std::pair<int, int>>;  // edge, micro-batch

Transfers between(const Schedule& schedule, LaneId lane, int peer) {
  Transfers transfers;
  for (const Action& action : schedule.actions) {
    if (action.lane == lane && action.peer == peer)
      transfers.emplace_back(action.edge, action.micro_batch);
  }
  return transfers;
}

// The world model's head takes the window that its encoder gave, beside what the body made of it.
TEST(PipelineSchedule, ReceivesInTheOrderOfSendsWhereValuesSkipBlocks) {
  const BuiltModel built =
      build_model({{"family", "world_model"}, {"size", "tiny"}, {"action_count", 5}});
  for (const auto order : {PipelineOrder::kGPipe, PipelineOrder::k1F1B}) {
    for (const int stages : {2, 3}) {
      Strategy strategy;
      strategy.mesh.pipeline = stages;
      strategy.pipeline_order = order;
      strategy.accumulation = 4;
      const ParameterTable table = make_parameter_table(built.model, strategy);
      const Graph graph = compile_graph(built.model, table, built.batch, strategy);
      std::vector<Schedule> schedules;
      for (int s = 0; s < stages; ++s) schedules.push_back(build_schedule(graph, strategy, s));
      for (int a = 0; a < stages; ++a) {
        for (int b = a + 1; b < stages; ++b) {
          const Schedule &upper = schedules[static_cast<size_t>(a)],
                         &lower = schedules[static_cast<size_t>(b)];
          const Transfers sent = between(upper, LaneId::kSendDown, b);
          if (b == a + 1) {
            EXPECT_GE(sent.size(), 4U);
          }
          EXPECT_EQ(sent, between(lower, LaneId::kReceiveDown, a));
          EXPECT_EQ(between(lower, LaneId::kSendUp, a), between(upper, LaneId::kReceiveUp, b));
        }
      }
    }
  }
}

}  // namespace
}  // namespace vitrine
