// The schedule of a step is frozen by a golden text: ZeRO-3, two ranks, two micro-batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "schedule/action.h"
#include "support/toy_models.h"

namespace vitrine::testing {
namespace {

class ScheduleJson : public ::testing::Test {
 protected:
  ScheduleJson() : model_(toy_decoder(2, false)) {
    strategy_.mesh.data = 2;
    strategy_.shard = Sharding::stage(3);
    strategy_.accumulation = 2;
    strategy_.persistence_threshold = 0;
    strategy_.reduce_bucket = 6000;      // several buckets a micro-step
    strategy_.prefetch_elements = 8000;  // a block and a half ahead
    table_ = make_parameter_table(model_, strategy_);
    const BatchTypes batch = {{"tokens", {{1, 8}, DType::kI32}},
                              {"targets", {{1, 8}, DType::kI32}}};
    graph_ = compile_graph(model_, table_, batch, strategy_);
  }
  Model model_;
  Strategy strategy_;
  ParameterTable table_;
  Graph graph_;
};

TEST_F(ScheduleJson, MatchesTheGoldenFile) {
  const std::string golden = "tests/schedule/golden/zero3_accumulation2.json";
  const std::string text = schedule_json(build_schedule(graph_, strategy_, 0), graph_) + "\n";
  // A change that is meant: VITRINE_WRITE_GOLDEN=1 build/bin/schedule_test, then read the
  // difference.
  if (std::getenv("VITRINE_WRITE_GOLDEN")) write_text_file(golden, text);
  EXPECT_EQ(text, read_text_file(golden));
}

TEST_F(ScheduleJson, WaitsPointBackAndLanesOfAllRanksIssueTheSameCollectives) {
  const Schedule first = build_schedule(graph_, strategy_, 0),
                 second = build_schedule(graph_, strategy_, 1);
  ASSERT_EQ(first.actions.size(), second.actions.size());
  for (size_t i = 0; i < first.actions.size(); ++i) {
    const Action& a = first.actions[i];
    for (const int wait : a.waits) EXPECT_LT(wait, static_cast<int>(i));
    EXPECT_EQ(a.kind, second.actions[i].kind);
    EXPECT_EQ(a.lane, second.actions[i].lane);
    EXPECT_EQ(a.units, second.actions[i].units);
    EXPECT_EQ(a.waits, second.actions[i].waits);
  }
}

// In how many of the first micro-batch's forwards the next block's unit is asked for before the
// block before it runs.
int gathered_ahead(const Schedule& schedule) {
  int ahead = 0;
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& gather = schedule.actions[i];
    if (gather.kind != ActionKind::kGather || gather.block == 0) continue;
    if (static_cast<int>(i) >= schedule.forward_end[0]) break;
    for (size_t k = i + 1; k < schedule.actions.size(); ++k) {
      const Action& a = schedule.actions[k];
      if (a.kind != ActionKind::kForward || a.block != gather.block - 1) continue;
      ahead += a.micro_batch == 0;
      break;
    }
  }
  return ahead;
}

// A unit larger than the prefetch limit is fetched ahead too, unless that would keep too much
// alive.
TEST_F(ScheduleJson, PrefetchCountsWhatIsInFlightBeforeAUnit) {
  int64_t largest = 0;
  for (const Unit& unit : table_.units) largest = std::max(largest, unit.elements);
  ASSERT_GT(largest, 1000);
  strategy_.prefetch_elements = 0;
  EXPECT_EQ(gathered_ahead(build_schedule(graph_, strategy_, 0)), 0);
  strategy_.prefetch_elements = 1000000;
  const int all = gathered_ahead(build_schedule(graph_, strategy_, 0));
  EXPECT_EQ(all, 3);                          // two body blocks and the head
  strategy_.prefetch_elements = largest + 1;  // one unit may be in flight, whatever comes behind it
  EXPECT_EQ(gathered_ahead(build_schedule(graph_, strategy_, 0)), all);
  strategy_.max_live_elements = largest;  // but not two alive
  EXPECT_LT(gathered_ahead(build_schedule(graph_, strategy_, 0)), all);
}

// What is kept whole is published once it is updated and not gathered; a name that matches nothing
// is said.
TEST_F(ScheduleJson, NamedParametersStayWhole) {
  const auto count = [&](ActionKind kind, const std::string& unit) {
    table_ = make_parameter_table(model_, strategy_);
    const BatchTypes batch = {{"tokens", {{1, 8}, DType::kI32}},
                              {"targets", {{1, 8}, DType::kI32}}};
    graph_ = compile_graph(model_, table_, batch, strategy_);
    int found = 0;
    for (const Action& action : build_schedule(graph_, strategy_, 0).actions) {
      if (action.kind != kind) continue;
      for (const int u : action.units) {
        found += table_.units[static_cast<size_t>(u)].name.starts_with(unit) ? 1 : 0;
      }
    }
    return found;
  };
  for (const char* unit : {"embed", "body.0", "body.1"}) {
    EXPECT_GT(count(ActionKind::kGather, unit), 0) << unit;
    EXPECT_EQ(count(ActionKind::kPublish, unit), 0) << unit;
  }
  strategy_.persistent = {"embed.*", "body.0.*"};
  for (const char* unit : {"embed", "body.0"}) {
    EXPECT_EQ(count(ActionKind::kGather, unit), 0) << unit;
    EXPECT_EQ(count(ActionKind::kPublish, unit), 1) << unit;
  }
  EXPECT_GT(count(ActionKind::kGather, "body.1"), 0);
  strategy_.persistent = {"body.7.*"};
  try {
    make_parameter_table(model_, strategy_);
    FAIL() << "a name without a parameter was taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("persistent: \"body.7.*\" matches no parameter; the nearest is \"body.0."),
              std::string::npos)
        << error.what();
  }
}

// Walks the actions and keeps the books: nothing is used before it is there, or left behind, and
// the compute lane alone makes room and lets go.
TEST_F(ScheduleJson, ReservesWhatLanesFillAndReleasesAll) {
  const Schedule schedule = build_schedule(graph_, strategy_, 1);
  std::set<int> reserved, gathered, reducing;
  std::map<int, int> reserved_by, reduced_by;  // unit -> the latest action
  int reduces = 0;
  for (int i = 0; i < static_cast<int>(schedule.actions.size()); ++i) {
    const Action& action = schedule.actions[static_cast<size_t>(i)];
    const auto waits_for = [&](int earlier) {  // itself, or what follows it on its lane
      const LaneId lane = schedule.actions[static_cast<size_t>(earlier)].lane;
      return std::any_of(action.waits.begin(), action.waits.end(), [&](int wait) {
        return wait >= earlier && schedule.actions[static_cast<size_t>(wait)].lane == lane;
      });
    };
    const bool holds = action.kind == ActionKind::kReserve || action.kind == ActionKind::kRelease;
    EXPECT_TRUE(!holds || action.lane == LaneId::kCompute);
    for (const int unit : action.units) {
      switch (action.kind) {
        case ActionKind::kReserve:
          EXPECT_TRUE((action.of_reduction ? reducing : reserved).insert(unit).second) << "twice";
          reserved_by[unit] = i;
          break;
        case ActionKind::kGather:
          EXPECT_EQ(reserved.erase(unit), 1u);
          EXPECT_TRUE(waits_for(reserved_by[unit]));
          gathered.insert(unit);
          break;
        case ActionKind::kReduce:
          EXPECT_TRUE(reducing.contains(unit));
          EXPECT_TRUE(waits_for(reserved_by[unit]));
          reduced_by[unit] = i;
          ++reduces;
          break;
        case ActionKind::kRelease:
          EXPECT_EQ((action.of_reduction ? reducing : gathered).erase(unit), 1u);
          EXPECT_TRUE(!action.of_reduction || waits_for(reduced_by[unit]));
          break;
        default:
          break;
      }
    }
    if (action.kind == ActionKind::kForward || action.kind == ActionKind::kBackward) {
      for (const ParameterUse use : table_.uses[static_cast<size_t>(action.block)]) {
        const bool forward = action.kind == ActionKind::kForward;
        EXPECT_TRUE(forward ? gathered.contains(use.unit) : !reducing.contains(use.unit));
      }
    }
  }
  EXPECT_TRUE(reserved.empty());
  EXPECT_TRUE(gathered.empty());
  EXPECT_TRUE(reducing.empty());
  EXPECT_EQ(reduces, 2 * static_cast<int>(table_.units.size()));
}

// At most one reduction runs beside the compute lane, and none where a micro-batch's activations
// are at their highest: in its last forward.
TEST_F(ScheduleJson, ReductionsAreReleasedInBoundedTime) {
  for (const int64_t bucket : {int64_t{1}, int64_t{6000}, int64_t{1} << 40}) {
    strategy_.reduce_bucket = bucket;
    const Schedule schedule = build_schedule(graph_, strategy_, 0);
    const int head = static_cast<int>(graph_.blocks.size()) - 1;
    int held = 0, most = 0, beside_backward = 0, beside_forward = 0;
    for (const Action& action : schedule.actions) {
      if (action.of_reduction) held += action.kind == ActionKind::kReserve ? 1 : -1;
      most = std::max(most, held);
      if (action.kind == ActionKind::kBackward) beside_backward += held;
      if (action.kind != ActionKind::kForward) continue;
      EXPECT_TRUE(action.block != head || held == 0);
      beside_forward += held;
    }
    EXPECT_EQ(held, 0);
    EXPECT_EQ(most, 1);
    EXPECT_EQ(beside_backward > 0, bucket < int64_t{1} << 40);
    EXPECT_EQ(beside_forward, head);  // the last of the first micro-batch, beside the second
  }
}

// Without lanes of their own there is nothing to run beside.
TEST_F(ScheduleJson, WithoutOverlapEachReductionIsReleasedAtOnce) {
  strategy_.overlap = false;
  const Schedule schedule = build_schedule(graph_, strategy_, 0);
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    if (schedule.actions[i].kind != ActionKind::kReduce) continue;
    EXPECT_EQ(schedule.actions[i - 1].kind, ActionKind::kReserve);
    EXPECT_EQ(schedule.actions[i + 1].kind, ActionKind::kRelease);
  }
}

}  // namespace
}  // namespace vitrine::testing
