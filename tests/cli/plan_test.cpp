// vitrine plan and validate from the command line: output, exit codes, one paragraph for bad input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/json.h"
#include "support/command.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class PlanCommand : public testing::Test {
 protected:
  Json planned(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    arguments.push_back("--json");
    const CommandResult result = run_vitrine(arguments, folder_.path());
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(result.error, "");
    return parse_json(result.out, "vitrine plan --json");
  }
  std::string refused(std::vector<std::string> arguments, int code) {
    const CommandResult result = run_vitrine(arguments, folder_.path());
    EXPECT_EQ(result.code, code) << result.out << result.error;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, Not(HasSubstr("\n\n")));
    EXPECT_THAT(result.error, Not(HasSubstr("terminate")));
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp"))) << "half-written";
    }
    return result.error;
  }
  std::string refused_job(std::vector<std::string> more, int code) {
    std::vector<std::string> all = {"plan", "llama3-8b", "--gpus", "16xH100"};
    all.insert(all.end(), more.begin(), more.end());
    return refused(all, code);
  }

  // One job on eight of each card, as JSON.
  CommandResult compared(const std::string& cards, const std::vector<std::string>& more = {}) {
    std::vector<std::string> line{"plan",
                                  "compare-cards",
                                  "llama3-8b",
                                  "--cards",
                                  cards,
                                  "--gpus",
                                  "8",
                                  "--seq",
                                  "4096",
                                  "--global-batch",
                                  "64",
                                  "--json"};
    line.insert(line.end(), more.begin(), more.end());
    return run_vitrine(line, folder_.path());
  }

  ScratchFolder folder_;
};

TEST_F(PlanCommand, SaysMemoryTimeSpeedTrafficAndCost) {
  const CommandResult result = run_vitrine({"plan",
                                            "llama3-8b",
                                            "--gpus",
                                            "16xH100",
                                            "--pipeline",
                                            "4",
                                            "--global-batch",
                                            "64",
                                            "--seq",
                                            "4096",
                                            "--price",
                                            "2.5"},
                                           folder_.path());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("8.03 B parameters"),
                    HasSubstr("Memory at the peak"),
                    HasSubstr("Fits:"),
                    HasSubstr("in flight"),
                    HasSubstr("matrix products"),
                    HasSubstr("pipeline bubble"),
                    HasSubstr("MFU"),
                    HasSubstr("tokens/s"),
                    HasSubstr("A card sends in a step"),
                    HasSubstr("GPU-hours"),
                    HasSubstr("at 2.5 a GPU-hour"),
                    HasSubstr("Nearest changes")));
}

TEST_F(PlanCommand, TheJsonsPartsAddUp) {
  const Json plan = planned({"llama3-8b", "--gpus", "16xH100", "--pipeline", "4", "--zero", "1"});
  double sum = 0;
  const Json& prediction = plan["prediction"];
  for (const auto& [name, ns] : prediction["step_parts_ns"].items()) sum += ns.get<double>();
  EXPECT_NEAR(sum / prediction["step_ns"].get<double>(), 1, 1e-4);
  for (const Json& stage : prediction["memory"]["stages"]) {
    double bytes =
        stage["context_bytes"].get<double>() + stage["fragmentation_bytes"].get<double>();
    for (const auto& [name, value] : stage["by_category_bytes"].items()) {
      bytes += value.get<double>();
    }
    EXPECT_NEAR(bytes / stage["total_bytes"].get<double>(), 1, 1e-9);
  }
  EXPECT_EQ(plan["strategy"]["data"], 4);
  EXPECT_FALSE(plan["assumed"].empty());
}

TEST_F(PlanCommand, ASearchListsTheBestAndWhyOthersLost) {
  const Json plan = planned({"llama3-8b",
                             "--gpus",
                             "8xH100",
                             "--seq",
                             "4096",
                             "--global-batch",
                             "64",
                             "--search",
                             "--top",
                             "3"});
  EXPECT_EQ(plan["search"]["best"].size(), 3u);
  EXPECT_EQ(plan["search"]["best"][0]["strategy"], plan["strategy"]);
  EXPECT_GT(plan["search"]["pareto"].size(), 1u);
  EXPECT_FALSE(plan["search"]["losses"].empty());
}

TEST_F(PlanCommand, AnEmittedDeepSpeedConfigurationPlansTheSame) {
  const std::vector<std::string> job = {"plan", "llama3-8b", "--gpus", "8xH100", "--seq", "4096"};
  std::vector<std::string> first = job, second = job;
  for (const char* more : {"--zero",
                           "3",
                           "--micro-batch",
                           "2",
                           "--global-batch",
                           "64",
                           "--recompute",
                           "full",
                           "--offload",
                           "optimizer"}) {
    first.push_back(more);
  }
  std::vector<std::string> emit = first;
  emit.insert(emit.end(), {"--emit", "deepspeed"});
  const CommandResult emitted = run_vitrine(emit, folder_.path());
  ASSERT_EQ(emitted.code, 0) << emitted.error;
  write_text_file(folder_ / "ds.json", emitted.out);
  second.insert(second.end(), {"--deepspeed", "ds.json"});
  first.erase(first.begin());
  second.erase(second.begin());
  const Json one = planned(first), two = planned(second);
  EXPECT_EQ(one["strategy"], two["strategy"]);
  EXPECT_EQ(one["prediction"]["step_ns"], two["prediction"]["step_ns"]);
}

TEST_F(PlanCommand, APredictedTimelineReadsLikeARecordedOne) {
  const Json plan = planned({"llama3-8b",
                             "--gpus",
                             "16xH100",
                             "--pipeline",
                             "4",
                             "--seq",
                             "4096",
                             "--global-batch",
                             "64"});
  const auto write_timeline = [&] {
    return run_vitrine({"plan",
                        "llama3-8b",
                        "--gpus",
                        "16xH100",
                        "--pipeline",
                        "4",
                        "--seq",
                        "4096",
                        "--global-batch",
                        "64",
                        "--timeline",
                        "t/step.json.gz"},
                       folder_.path());
  };
  const CommandResult written = write_timeline();
  EXPECT_EQ(written.code, 1) << "there is no folder t";
  fs::create_directory(folder_ / "t");
  const CommandResult again = write_timeline();
  ASSERT_EQ(again.code, 0) << again.error;
  const CommandResult read = run_vitrine({"diagnose", "t", "--json"}, folder_.path());
  ASSERT_EQ(read.code, 0) << read.error;
  const Json facts = parse_json(read.out, "vitrine diagnose");
  ASSERT_EQ(facts["ranks"].size(), 4u);
  const double step = plan["prediction"]["step_ns"].get<double>();
  for (const Json& rank : facts["ranks"]) {
    ASSERT_FALSE(rank["steps"].empty());
    EXPECT_NEAR(rank["steps"][1]["duration_ns"].get<double>() / step, 1, 1e-3);
  }
  ASSERT_FALSE(facts["pipeline"].is_null());
  EXPECT_EQ(facts["pipeline"]["micro_batches"], 16);
  EXPECT_EQ(facts["pipeline"]["by_stage"].size(), 4u);
  // Waiting and transfers of the stage that bounds the step.
  const Json& parts = plan["prediction"]["step_parts_ns"];
  const Json& stage =
      facts["pipeline"]["by_stage"][plan["prediction"]["bounding_stage"].get<size_t>()];
  const double predicted =
      parts["pipeline bubble"].get<double>() + parts["transfers between stages"].get<double>();
  EXPECT_NEAR(
      (stage["bubble_ns"].get<double>() + stage["transfer_ns"].get<double>()) / predicted, 1, 0.02);
  EXPECT_EQ(run_vitrine({"report", "t", "-o", "t.html"}, folder_.path()).code, 0);
}

TEST_F(PlanCommand, AReportIsWritten) {
  const CommandResult result = run_vitrine({"plan",
                                            "llama3-8b",
                                            "--gpus",
                                            "8xH100",
                                            "--seq",
                                            "4096",
                                            "--global-batch",
                                            "64",
                                            "--report",
                                            "plan.html"},
                                           folder_.path());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_GT(fs::file_size(folder_ / "plan.html"), 10000u);
}

TEST_F(PlanCommand, CardsAreCompared) {
  const CommandResult result = compared("H100,MTT-S4000");
  ASSERT_EQ(result.code, 0) << result.error;
  const Json cards = parse_json(result.out, "compare-cards")["cards"];
  ASSERT_EQ(cards.size(), 2u);
  ASSERT_TRUE(cards[0]["fits"].get<bool>());
  EXPECT_LT(cards[0]["prediction"]["step_ns"].get<double>(),
            cards[1]["fits"].get<bool>() ? cards[1]["prediction"]["step_ns"].get<double>() : 1e300);
}

// A profile is of its own card alone; software is of all.
TEST_F(PlanCommand, CardsAreComparedWithAProfileOfOneOfThem) {
  write_text_file(folder_ / "h200.json", R"({"base": "H200", "efficiency": {"matmul": 0.2}})");
  const auto steps = [&](const std::vector<std::string>& more) {
    const CommandResult result = compared("H100,H200", more);
    EXPECT_EQ(result.code, 0) << result.error;
    const Json cards = parse_json(result.out, "compare-cards")["cards"];
    return std::pair(cards[0]["prediction"]["step_ns"].get<double>(),
                     cards[1]["prediction"]["step_ns"].get<double>());
  };
  const auto [h100, h200] = steps({});
  const auto [same, slower] = steps({"--profile", folder_ / "h200.json"});
  EXPECT_EQ(same, h100);
  EXPECT_GT(slower, 2 * h200);
  EXPECT_NE(steps({"--stack", "pytorch"}).first, h100);
}

TEST_F(PlanCommand, DeepSpeedsEstimateIsPrinted) {
  const CommandResult result = run_vitrine(
      {"plan", "llama3-8b", "--gpus", "8xH100", "--estimator", "deepspeed", "--zero", "2"},
      folder_.path());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("per CPU"));
}

TEST_F(PlanCommand, WrongUseExitsWithTwo) {
  refused({"plan"}, 2);
  refused({"plan", "llama3-8b"}, 2);
  refused_job({"--emit", "jax"}, 2);
  refused_job({"--estimator", "mine"}, 2);
  refused_job({"--zero", "4"}, 2);
  refused_job({"--zero", "many"}, 2);
  refused_job({"--tensor", "0"}, 2);
  refused_job({"--pipeline", "-1"}, 2);
  refused_job({"--context", "0"}, 2);
  refused_job({"--expert", "0"}, 2);
  refused_job({"--interleave", "0"}, 2);
  refused_job({"--micro-batch", "0"}, 2);
  refused_job({"--global-batch", "-8"}, 2);
  refused_job({"--seq", "0"}, 2);
  refused_job({"--shard-group", "0"}, 2);
  refused_job({"--loss-chunk-rows", "0"}, 2);
  refused_job({"--nodes-of", "0"}, 2);
  refused_job({"--price", "-1"}, 2);
  refused_job({"--tokens", "0"}, 2);
  refused_job({"--top", "0"}, 2);
  refused_job({"--offload", "everything"}, 2);
  refused_job({"--timeline", "out.txt"}, 2);
  refused_job({"--deepspeed", "a.json", "--strategy", "b.json"}, 2);
  refused_job({"--no-such-option"}, 2);
  refused({"plan", "compare-cards", "llama3-8b", "--cards", ","}, 2);
  write_text_file(folder_ / "h200.json", R"({"base": "H200", "efficiency": {"matmul": 0.3}})");
  EXPECT_THAT(refused({"plan",
                       "compare-cards",
                       "llama3-8b",
                       "--cards",
                       "H100",
                       "--profile",
                       folder_ / "h200.json"},
                      2),
              HasSubstr("of none of the --cards (H100)"));
  refused({"plan", "compare-cards", "llama3-8b", "--cards", "H100", "--gpus", "8xH100"}, 2);
}

TEST_F(PlanCommand, ImpossibleInputIsRefusedWithTheReasonAndTheNearestValue) {
  EXPECT_THAT(refused({"plan", "lama3-8b", "--gpus", "8xH100"}, 1), HasSubstr("llama3-8b"));
  EXPECT_THAT(refused({"plan", "llama3-8b", "--gpus", "8xH1000"}, 1), HasSubstr("H100"));
  EXPECT_THAT(refused({"plan", "llama3-8b", "--gpus", "xH100"}, 1), StartsWith("error"));
  EXPECT_THAT(refused({"plan", "no/config.json", "--gpus", "8xH100"}, 1), HasSubstr("no/config"));
  EXPECT_THAT(refused_job({"--tensor", "3"}, 1), HasSubstr("nearest"));
  EXPECT_THAT(refused_job({"--tensor", "16", "--nodes-of", "8", "--pipeline", "2"}, 1),
              HasSubstr("16 cards"));
  EXPECT_THAT(refused_job({"--pipeline", "16", "--interleave", "4"}, 1), HasSubstr("layers"));
  EXPECT_THAT(refused_job({"--global-batch", "10"}, 1), HasSubstr("nearest"));
  EXPECT_THAT(refused_job({"--expert", "2"}, 1), HasSubstr("no experts"));
  EXPECT_THAT(refused_job({"--context", "3"}, 1), HasSubstr("nearest"));
  EXPECT_THAT(refused_job({"--recompute", "some"}, 1), HasSubstr("selective"));
  EXPECT_THAT(refused_job({"--schedule", "2f2b"}, 1), HasSubstr("1f1b"));
  EXPECT_THAT(refused_job({"--precision", "fp12"}, 1), HasSubstr("bf16"));
  EXPECT_THAT(refused_job({"--topology", "dgx-h1000"}, 1), HasSubstr("dgx-h100"));
  EXPECT_THAT(refused_job({"--profile", "nowhere.json"}, 1), HasSubstr("nowhere.json"));
  EXPECT_THAT(refused_job({"--deepspeed", "nowhere.json"}, 1), HasSubstr("nowhere.json"));
  EXPECT_THAT(refused_job({"--strategy", "nowhere.json"}, 1), HasSubstr("nowhere.json"));
  EXPECT_THAT(refused_job({"--report", "no/folder/x.html"}, 1), HasSubstr("no/folder/x.html"));
  EXPECT_THAT(refused_job({"--offload", "optimizer:moon"}, 1), HasSubstr("host"));
  EXPECT_THAT(refused_job({"--imbalance", "0.5"}, 1), HasSubstr("imbalance"));
  EXPECT_THAT(refused({"plan", "compare-cards", "llama3-8b", "--cards", "H100,H20O"}, 1),
              HasSubstr("H20O"));
  write_text_file(folder_ / "s.json", R"({"tensr": 2})");
  EXPECT_THAT(refused_job({"--strategy", "s.json"}, 1), HasSubstr("tensor"));
  write_text_file(folder_ / "ds.json", R"({"zero_optimisation": {"stage": 2}})");
  EXPECT_THAT(refused_job({"--deepspeed", "ds.json"}, 1), HasSubstr("zero_optimization"));
}

TEST_F(PlanCommand, ValidateSaysWhatItRefusesAndWhy) {
  write_text_file(
      folder_ / "rows.csv",
      "id,source,model,params_B,layers,hidden,heads,kv_heads,ffn,vocab,seq,global_batch,"
      "micro_batch,gpus,gpu_kind,tp,pp,interleave,dp,cp,ep,zero_stage,recompute,"
      "sequence_parallel,offload,precision,measured_step_s,measured_tflops_per_gpu,measured_mfu,"
      "measured_mem_GB,notes\n"
      "1,one,GPT,1.7,24,2304,24,24,9216,51200,2048,512,8,32,A100-80GB,1,1,,32,1,,,full,0,,"
      "fp16 mixed,5.0,,,,\n"
      "2,two,GPT,1.7,24,2304,24,24,9216,51200,2048,512,8,32,ABACUS,1,1,,32,1,,,full,0,,"
      "fp16 mixed,5.0,,,,\n");
  const CommandResult result =
      run_vitrine({"validate", "rows.csv", "--json", "--rows", "out.csv"}, folder_.path());
  ASSERT_EQ(result.code, 0) << result.error;
  const Json json = parse_json(result.out, "vitrine validate --json");
  EXPECT_EQ(json["rows_taken"], 1);
  ASSERT_EQ(json["rows_refused"].size(), 1u);
  EXPECT_EQ(json["rows_refused"][0]["id"], "2");
  EXPECT_THAT(json["rows_refused"][0]["reason"].get<std::string>(), HasSubstr("ABACUS"));
  EXPECT_TRUE(json["by_source"].contains("one"));
  for (const char* key : {"median_abs_error", "p90_abs_error", "bias"}) {
    EXPECT_TRUE(json["step_time"].contains(key));
    EXPECT_TRUE(json["memory"].contains(key));
  }
  EXPECT_TRUE(fs::exists(folder_ / "out.csv"));
  EXPECT_THAT(refused({"validate", "nowhere.csv"}, 1), HasSubstr("nowhere.csv"));
  write_text_file(folder_ / "torn.csv", "a,b\n1\n");
  EXPECT_THAT(refused({"validate", "torn.csv"}, 1), HasSubstr("torn.csv"));
}

}  // namespace
}  // namespace vitrine
