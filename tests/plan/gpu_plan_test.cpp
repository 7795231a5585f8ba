// Run files planned on GPUs, against measured steps of this engine
// (bench/results/plan_gpu_h200_*.md): the replayed schedule's memory is the ledger's peak to the
// byte (where two cards were noted in GiB, within half a percent), which nothing is fitted to; the
// step within 7 % on one card, whose share of the peak was fitted to such runs, and 10 on two, of
// which one was 4 to 5 % slower than the other.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "calibrate/measure_gpus.h"
#include "core/json.h"
#include "plan/engine_stage_memory.h"
#include "plan/predict.h"
#include "plan/run_strategy.h"
#include "plan/strategy_json.h"

namespace vitrine {
namespace {

struct Measured {
  const char *family, *size;
  int64_t micro_batch, accumulation;
  int ranks, stage;
  bool bf16_states, fp8;
  double step_ms;       // 0: of two ranks on one card, which says nothing about two
  int64_t peak_bytes;   // of the ledger; 0: not noted
  double peak_gib = 0;  // where no more digits are known
};
// bf16 with bf16 gradients and reduction, f32 masters and moments unless said; sequences of 1,024.
constexpr Measured kMeasured[] = {
    {"decoder", "qwen2.5-1.5b", 16, 1, 1, 0, false, false, 276.2, 60'379'324'484},
    {"decoder", "qwen2.5-1.5b", 16, 4, 1, 0, false, false, 1068.2, 0},
    {"decoder", "qwen2.5-1.5b", 16, 4, 1, 1, true, false, 1071.7, 48'029'610'052},
    {"decoder", "qwen2.5-7b", 8, 1, 1, 1, true, false, 600.2, 100'763'873'348},
    {"decoder", "qwen2.5-7b", 8, 1, 1, 1, true, true, 432.2, 114'100'718'660},
    {"world_model", "small", 32, 1, 1, 0, false, false, 211.3, 79'716'651'136},
    {"decoder", "qwen2.5-0.5b", 32, 1, 1, 0, false, false, 201.6, 0},
    {"decoder", "qwen2.5-1.5b", 16, 1, 2, 2, false, false, 282.9, 0, 46.9},
    {"decoder", "qwen2.5-1.5b", 16, 1, 2, 3, false, false, 288.3, 0, 46.8},
    {"decoder", "qwen2.5-1.5b", 16, 4, 2, 1, false, false, 1102.1, 0},
    {"decoder", "qwen2.5-7b", 8, 1, 2, 3, false, false, 642.7, 0, 97.0},
    {"decoder", "qwen2.5-7b", 8, 1, 2, 3, true, false, 638.4, 0, 69.1},
    {"decoder", "qwen2.5-7b", 8, 1, 2, 3, true, true, 450.5, 0},
    {"decoder", "qwen2.5-0.5b", 8, 1, 2, 0, false, false, 0, 16'995'088'452},
    {"decoder", "qwen2.5-0.5b", 8, 1, 2, 1, false, false, 0, 14'030'891'844},
    {"decoder", "qwen2.5-0.5b", 8, 1, 2, 2, false, false, 0, 13'809'130'180},
    {"decoder", "qwen2.5-0.5b", 8, 1, 2, 3, false, false, 0, 14'303'091'396},
};

// Steps measured in the minutes after the calibration of two_h200.json, on the same cards.
constexpr Measured kSameCall[] = {
    {"decoder", "qwen2.5-1.5b", 16, 1, 1, 0, false, false, 274.6, 0},
    {"decoder", "qwen2.5-7b", 8, 1, 1, 1, true, false, 599.2, 0},
    {"decoder", "qwen2.5-7b", 8, 1, 1, 1, true, true, 428.6, 0},
    {"decoder", "qwen2.5-0.5b", 32, 1, 1, 0, false, false, 194.3, 0},
    {"world_model", "small", 32, 1, 1, 0, false, false, 209.9, 0},
    {"decoder", "qwen2.5-1.5b", 16, 1, 2, 3, false, false, 283.5, 0},
    {"decoder", "qwen2.5-7b", 8, 1, 2, 3, false, false, 626.7, 0},
};

RunConfig run_of(const Measured& m) {
  Json file{{"model", {{"family", m.family}, {"size", m.size}}},
            {"data", {{"kind", "random"}}},
            {"train", {{"steps", 3}}},
            {"train_micro_batch_size_per_gpu", m.micro_batch},
            {"gradient_accumulation_steps", m.accumulation},
            {"bf16",
             {{"enabled", true},
              {"bf16_master_weights_and_grads", m.bf16_states},
              {"bf16_optimizer_states", m.bf16_states}}},
            {"data_types", {{"grad_accum_dtype", "bf16"}}},
            {"zero_optimization",
             {{"stage", m.stage}, {"reduce_bucket_size", 1e6}, {"allgather_bucket_size", 1e6}}}};
  if (std::string(m.family) == "decoder") file["model"]["sequence_length"] = 1024;
  if (m.fp8) file["fp8"] = {{"enabled", true}};
  ConfigOptions options;
  options.world = m.ranks;
  if (m.stage == 3) {
    options.overrides.push_back("zero_optimization.stage3_prefetch_bucket_size=500000000");
  }
  return make_run_config(file, options);
}

TEST(GpuPlan, IsTheMeasuredMemoryToTheByteAndTheStepNearly) {
  for (const Measured& m : kMeasured) {
    SCOPED_TRACE(std::string(m.size) + ", " + std::to_string(m.ranks) + " ranks, stage " +
                 std::to_string(m.stage) + (m.fp8 ? ", fp8" : ""));
    const RunConfig config = run_of(m);
    Cluster cluster = make_cluster(std::to_string(m.ranks) + "xH200");
    choose_stack(cluster, "vitrine");
    const std::string path = testing::TempDir() + "/gpu_plan_run.json";
    std::ofstream(path) << config.model;
    Planner planner(model_shape(path), cluster);
    const ClusterStrategy s = strategy_of_run(config);
    ASSERT_TRUE(engine_runs(planner.model(), s));
    const Prediction p = planner.predict(s);
    const StageMemory& memory = p.memory.front();
    if (m.peak_bytes > 0) {
      EXPECT_EQ(std::llround(memory.total() - memory.context_bytes), m.peak_bytes);
    }
    if (m.peak_gib > 0) {
      const double ledger = (memory.total() - memory.context_bytes) / (1 << 30);
      EXPECT_NEAR(ledger / m.peak_gib, 1, 0.005) << ledger;
    }
    if (m.step_ms > 0) {
      const double ratio = p.time.step_ns * 1e-6 / m.step_ms;
      EXPECT_NEAR(ratio, 1, m.ranks == 1 ? 0.07 : 0.10);
      RecordProperty(std::string(m.size) + "_" + std::to_string(m.ranks) + "_stage" +
                         std::to_string(m.stage) + (m.fp8 ? "_fp8" : ""),
                     std::to_string(ratio));
    }
    EXPECT_TRUE(p.fits);
    // Nothing runs twice but attention's scores.
    EXPECT_LE(p.mfu, p.hfu);
    EXPECT_GT(p.mfu, 0.9 * p.hfu);
  }
}

// What the run file names stays whole: on each of two ranks half of it more.
TEST(GpuPlan, CountsPersistentParametersWhole) {
  RunConfig config = run_of({"decoder", "qwen2.5-1.5b", 16, 1, 2, 3, false, false, 0, 0});
  const std::string path = testing::TempDir() + "/gpu_plan_persistent.json";
  std::ofstream(path) << config.model;
  Cluster cluster = make_cluster("2xH200");
  choose_stack(cluster, "vitrine");
  Planner planner(model_shape(path), cluster);
  const StageMemory sharded = planner.predict(strategy_of_run(config)).memory.front();
  config.strategy.persistent = {"embed.*"};
  const ClusterStrategy named = strategy_of_run(config);
  EXPECT_EQ(strategy_from_json(strategy_json(named), "json", {}).persistent, named.persistent);
  const StageMemory whole = planner.predict(named).memory.front();
  const auto parameters = [](const StageMemory& memory) {
    return memory.bytes[static_cast<size_t>(MemoryCategory::kParameters)];
  };
  // Half of its values, which are of two bytes.
  EXPECT_EQ(parameters(whole) - parameters(sharded), int64_t{151936} * 1536);
}

// The constants that `vitrine calibrate --device gpu` found, to which no step is fitted, also where
// nobody knows the card, so that its peaks too are the measured ones.
TEST(GpuPlan, FromACalibrationIsNearTheStepsOfTheSameCards) {
  MeasuredGpus gpus =
      measured_gpus_from_json(read_json_file("tests/plan/data/two_h200.json"), "two_h200.json");
  const MeasuredHost host{"a processor", 32, 256e9, 112e9, {1.64e9, 1.65e9}};
  for (const char* name : {"NVIDIA H200", "Acme X1"}) {
    gpus.name = name;
    const std::string profile = testing::TempDir() + "/gpu_plan_profile.json";
    write_text_file(profile, gpu_profile_text(gpus, host));
    for (const Measured& m : kSameCall) {
      SCOPED_TRACE(std::string(name) + ", " + m.size + ", " + std::to_string(m.ranks) +
                   " ranks, stage " + std::to_string(m.stage) + (m.fp8 ? ", fp8" : ""));
      const RunConfig config = run_of(m);
      Cluster cluster = make_cluster(std::to_string(m.ranks), profile);
      choose_stack(cluster, "vitrine");
      const std::string path = testing::TempDir() + "/gpu_plan_run.json";
      std::ofstream(path) << config.model;
      Planner planner(model_shape(path), cluster);
      const double ratio = planner.predict(strategy_of_run(config)).time.step_ns * 1e-6 / m.step_ms;
      EXPECT_NEAR(ratio, 1, 0.08);
    }
  }
}

// What the engine does not run is planned as for others.
TEST(GpuPlan, FallsBackWhereTheEngineDoesNotRunAStrategy) {
  const Measured m = kMeasured[0];
  ClusterStrategy s = strategy_of_run(run_of(m));
  Planner planner(model_shape("qwen2.5-1.5b"), make_cluster("8xH200"));
  EXPECT_FALSE(engine_runs(planner.model(), s));  // a built-in shape has no section
  s.sequence = 1024;
  s.mesh.data = 4;
  s.mesh.tensor = 2;
  s.global_batch = 64;
  EXPECT_GT(planner.predict(s).memory.front().total(), 0);
}

}  // namespace
}  // namespace vitrine
