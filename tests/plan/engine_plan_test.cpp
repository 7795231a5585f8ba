// The planner of the engine: its look-up of measured times, its simulation against hand-made
// cases, and its timeline through our own writer and reader.
#include "plan/engine_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "calibrate/calibrate.h"
#include "core/error.h"
#include "core/json.h"
#include "machines/cluster.h"
#include "models/registry.h"
#include "ops/op_features.h"
#include "plan/measured_costs.h"
#include "readers/kineto.h"
#include "support/even_machine.h"
#include "support/temporary_folder.h"
#include "timeline/chrome_writer.h"

namespace vitrine::testing {
namespace {

using ::testing::HasSubstr;

RunConfig small_run(int ranks, int stage, int pipeline = 1) {
  const Json file{{"model",
                   {{"family", "decoder"},
                    {"size", "tiny"},
                    {"hidden", 32},
                    {"heads", 2},
                    {"vocab", 101},
                    {"layers", 2},
                    {"sequence_length", 16},
                    {"tied_embeddings", false}}},
                  {"data", {{"kind", "random"}}},
                  {"train", {{"steps", 3}}},
                  {"train_micro_batch_size_per_gpu", 2},
                  {"gradient_accumulation_steps", pipeline > 1 ? 4 : 1},
                  {"zero_optimization", {{"stage", stage}}}};
  ConfigOptions options;
  options.world = ranks;
  if (pipeline > 1) options.overrides.push_back("mesh.pipeline=" + std::to_string(pipeline));
  return make_run_config(file, options);
}

TEST(MeasuredCosts, AreTheMeasuredTimesAtMeasuredShapes) {
  MeasuredMachine machine = even_machine(1);
  const OpDef& op = find_op("linear");
  const std::vector<TensorType> in{{Shape{2, 32, 64}, DType::kF32}, {Shape{128, 64}, DType::kF32}};
  const double work = op_work(op.forward_cost({}, in));
  EXPECT_EQ(op_features(op, {}, in), (std::vector<double>{6, 6, 7}));
  machine.operations[0].rows.push_back({"linear", false, op_features(op, {}, in), work, 777});
  const MeasuredCosts costs(machine, DType::kF32, 1);
  TapeNode node;
  node.op = &op;
  EXPECT_NEAR(costs.operation_ns(node, in, false), 777, 1);
  EXPECT_TRUE(costs.notes().empty());
}

TEST(MeasuredCosts, OfCollectivesLieOnTheLineBetweenSizes) {
  const MeasuredMachine machine = even_machine(1);
  const MeasuredCosts costs(machine, DType::kF32, 2);
  EXPECT_DOUBLE_EQ(costs.collective("all_gather", 2, 500'000).ns, 501'000);
  EXPECT_DOUBLE_EQ(costs.collective("all_gather", 4, 500'000).ns, 3 * 501'000);
  EXPECT_DOUBLE_EQ(costs.collective("send", 4, 500'000).ns, 501'000);
  EXPECT_DOUBLE_EQ(costs.collective("all_gather", 2, 10).ns, 2000);
}

TEST(MeasuredCosts, SaysWhatStandsForWhatWasNotMeasured) {
  MeasuredMachine machine = even_machine(1);
  std::erase_if(machine.operations[0].rows, [](auto& row) { return row.op == "swiglu"; });
  const MeasuredCosts costs(machine, DType::kBF16, 1);
  TapeNode node;
  node.op = &find_op("swiglu");
  const std::vector<TensorType> in{{Shape{4, 64}, DType::kBF16}};
  EXPECT_GT(costs.operation_ns(node, in, false), 0);
  ASSERT_EQ(costs.notes().size(), 2U);
  EXPECT_THAT(*costs.notes().begin(), HasSubstr("bf16"));
  EXPECT_THAT(*costs.notes().rbegin(), HasSubstr("swiglu"));
  machine.collectives.clear();
  EXPECT_THROW(costs.collective("send", 2, 1), ConfigError);
}

// Alone, a step is its work and nothing else: the sum by hand over the tapes.
TEST(EngineTime, OfOneRankIsTheSumOfItsWork) {
  const MeasuredMachine machine = even_machine(1);
  const RunConfig config = small_run(1, 0);
  const EnginePlan plan = plan_engine(config, 1, &machine);
  BuildOptions build;
  build.micro_batch = 2;
  const BuiltModel built = build_model(parse_json(config.model, "model"), build);
  const ParameterTable table = make_parameter_table(built.model, config.strategy);
  const Graph graph = compile_graph(built.model, table, built.batch, config.strategy);
  double forward = 0, backward = 0;
  for (const GraphBlock& block : graph.blocks) {
    for (const TapeNode& node : block.tape->nodes()) {
      const auto in = block.tape->input_types(node);
      forward += op_work(node.op->forward_cost(node.attrs, in));
      if (node.needs_backward) backward += op_work(node.op->backward_cost(node.attrs, in));
    }
  }
  const double batch = 2 * 2 * 16 * 4;  // tokens and targets are copied in
  const EngineStepParts& parts = plan.by_rank[0].parts;
  EXPECT_NEAR(parts.forward_ns, forward + batch, 1);
  EXPECT_NEAR(parts.backward_ns, backward, 1);
  EXPECT_NEAR(parts.optimizer_ns, 2 * static_cast<double>(table.total_elements), 1);
  EXPECT_NEAR(plan.step_ns, parts.forward_ns + parts.backward_ns + parts.optimizer_ns, 1);
  EXPECT_NEAR(parts.communication_ns, 0, 1);
}

// Two ranks on one processor take turns: compute takes twice as long as with one each.
TEST(EngineTime, SharesProcessorsBetweenRanks) {
  const MeasuredMachine one = even_machine(1), two = even_machine(2);
  const RunConfig config = small_run(2, 0);
  const EnginePlan shared = plan_engine(config, 2, &one), apart = plan_engine(config, 2, &two);
  EXPECT_NEAR(shared.by_rank[0].parts.forward_ns / apart.by_rank[0].parts.forward_ns, 2, 1e-6);
  EXPECT_GT(shared.step_ns, 1.5 * apart.step_ns);
}

TEST(EngineTime, RunsEveryActionOfEveryRankOnce) {
  const MeasuredMachine machine = even_machine(2);
  for (const int pipeline : {1, 2}) {
    const int ranks = 2 * pipeline;
    const RunConfig config = small_run(ranks, pipeline > 1 ? 1 : 3, pipeline);
    BuildOptions build;
    build.micro_batch = 2;
    const BuiltModel built = build_model(parse_json(config.model, "model"), build);
    const ParameterTable table = make_parameter_table(built.model, config.strategy);
    const Graph graph = compile_graph(built.model, table, built.batch, config.strategy);
    std::vector<Schedule> schedules;
    for (int r = 0; r < ranks; ++r) schedules.push_back(build_schedule(graph, config.strategy, r));
    const EngineStepTime time = simulate_engine(
        graph, config.strategy, schedules, MeasuredCosts(machine, DType::kF32, ranks));
    for (size_t r = 0; r < schedules.size(); ++r) {
      const auto& actions = schedules[r].actions;
      EXPECT_EQ(time.ranks[r].order.size(), 2 * actions.size());
      for (size_t i = 0; i < actions.size(); ++i) {
        const ActionTime& at = time.ranks[r].actions[i];
        EXPECT_GE(at.end_ns, at.begin_ns);
        for (const int wait : actions[i].waits)
          EXPECT_GE(at.begin_ns, time.ranks[r].actions[static_cast<size_t>(wait)].end_ns);
      }
      const EngineStepParts& p = time.ranks[r].parts;
      EXPECT_NEAR(
          p.forward_ns + p.recompute_ns + p.backward_ns + p.optimizer_ns + p.communication_ns,
          time.ranks[r].end_ns,
          1);
    }
  }
}

TEST(EnginePlan, HasMemoryWithoutAProfileAndSaysSo) {
  const EnginePlan plan = plan_engine(small_run(2, 3), 2, nullptr);
  EXPECT_EQ(plan.step_ns, 0);
  EXPECT_TRUE(plan.timeline.ranks.empty());
  EXPECT_GT(plan.by_rank[1].memory.peak_bytes, 0);
  EXPECT_THAT(engine_plan_text(plan), HasSubstr("without a profile"));
  EXPECT_THROW(plan_engine(small_run(2, 3), 4, nullptr), ConfigError);
}

TEST(EngineTimeline, IsReadLikeARecordedOne) {
  const MeasuredMachine machine = even_machine(2);
  const EnginePlan plan = plan_engine(small_run(2, 3), 2, &machine);
  ASSERT_EQ(plan.timeline.ranks.size(), 2U);
  EXPECT_EQ(plan.timeline.origin, "predicted");
  const TemporaryFolder folder;
  for (const RankTimeline& predicted : plan.timeline.ranks) {
    const std::string path = folder / "rank.json.gz";
    write_chrome_trace(predicted, path);
    const RankTimeline read = read_kineto(path);
    EXPECT_EQ(read.rank, predicted.rank);
    EXPECT_EQ(read.world_size, 2);
    ASSERT_EQ(read.spans.size(), predicted.spans.size());
    EXPECT_EQ(read.collectives.size(), predicted.collectives.size());
    EXPECT_EQ(read.memory.size(), predicted.memory.size());
    int64_t sent = 0, step_ns = 0;
    for (const Collective& each : read.collectives) sent += each.sent_bytes;
    for (size_t i = 0; i < read.spans.size(); ++i) {
      if (read.spans.kind[i] == SpanKind::kStep) step_ns = read.spans.duration_ns[i];
    }
    const auto r = static_cast<size_t>(read.rank);
    EXPECT_EQ(sent, plan.by_rank[r].traffic.total());
    EXPECT_NEAR(static_cast<double>(step_ns), plan.by_rank[r].step_ns, 1);
  }
}

// Lanes do one thing at a time, and no sample is over what the plan says is needed.
TEST(EngineTimeline, AgreesWithThePlan) {
  const MeasuredMachine machine = even_machine(2);
  const EnginePlan plan = plan_engine(small_run(4, 1, 2), 4, &machine);
  for (const RankTimeline& rank : plan.timeline.ranks) {
    std::map<int32_t, int64_t> free_from;
    for (size_t i = 0; i < rank.spans.size(); ++i) {
      const SpanKind kind = rank.spans.kind[i];
      if (kind == SpanKind::kStep || kind == SpanKind::kRecompute || kind == SpanKind::kCollective)
        continue;  // these lie within or around others
      int64_t& from = free_from[rank.spans.lane[i]];
      EXPECT_GE(rank.spans.start_ns[i], from) << rank.strings[rank.spans.name[i]];
      from = rank.spans.start_ns[i] + rank.spans.duration_ns[i];
    }
    int64_t most = 0;
    for (const MemorySample& sample : rank.memory)
      most = std::max(most, std::accumulate(sample.bytes.begin(), sample.bytes.end(), int64_t{0}));
    EXPECT_LE(most, plan.by_rank[static_cast<size_t>(rank.rank)].most_bytes);
    EXPECT_GT(most, plan.by_rank[static_cast<size_t>(rank.rank)].memory.peak_bytes / 2);
  }
}

// What calibrate writes is a profile for plans of clusters and of the engine.
TEST(Profile, OfACalibrationIsAccepted) {
  const TemporaryFolder folder;
  const std::string path = folder / "profile.json";
  write_text_file(path, profile_text(even_machine(2)));
  const Cluster cluster = make_cluster("2", path);
  EXPECT_EQ(cluster.gpus, 2);
  EXPECT_EQ(cluster.profile, "cpu");
  EXPECT_DOUBLE_EQ(cluster.card->fp32_flops_per_s, 1e9);
  EXPECT_DOUBLE_EQ(cluster.efficiency.matmul, 1);
  EXPECT_GT(cluster.link_bytes_per_s, 0);
  const MeasuredMachine read = read_measured(path);
  EXPECT_EQ(read.cpus, 2);
  EXPECT_EQ(measured_json(read), measured_json(even_machine(2)));
  write_text_file(path, R"({"base": "H100"})");
  EXPECT_THROW(read_measured(path), ConfigError);
  EXPECT_THROW(read_measured(folder / "none.json"), IoError);
}

TEST(MeasuredMachine, IsReadBackAsWritten) {
  const MeasuredMachine machine = even_machine(2);
  const Json json = measured_json(machine);
  EXPECT_EQ(measured_json(measured_from_json(json, "m")), json);
  Json wrong = json;
  wrong["operations"][0]["rows"][3]["ns"] = -1;
  try {
    measured_from_json(wrong, "m");
    FAIL() << "a negative time was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rows[3].ns"));
  }
  wrong = json;
  wrong["collectives"][0]["kind"] = "gather";
  EXPECT_THROW(measured_from_json(wrong, "m"), ConfigError);
}

}  // namespace
}  // namespace vitrine::testing
