// The commands about GPUs, with one or without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/tiny_run.h"
#include "core/json.h"
#include "gpu/gpu.h"
#include "gpu/nvml.h"
#include "support/command.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(Doctor, WithoutAGpuSaysWhyAndFails) {
  const std::string why = why_no_gpu();
  if (why.empty()) GTEST_SKIP() << "this machine has a GPU: what is tested is a machine without";
  const CommandResult text = run_vitrine({"doctor", "gpu"});
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.error, HasSubstr(why));
  EXPECT_EQ(text.out, "");
  const CommandResult json = run_vitrine({"doctor", "gpu", "--json"});
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(parse_json(json.out, "out")["reason"], why);
}

// One paragraph from every command, alone and with several ranks, and nothing left of the run.
TEST(GpuCommands, WithoutAGpuSayWhyAndLeaveNoRun) {
  const std::string why = why_no_gpu();
  if (why.empty()) GTEST_SKIP() << "this machine has a GPU: what is tested is a machine without";
  const ScratchFolder folder;
  const std::string run = write_run(folder / "run.json", tiny_run());
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"train", run, "--device", "gpu"},
        {"train", run, "--device", "gpu", "--ranks", "2"},
        {"train", run, "--set", "train.device=gpu", "--ranks", "2", "--run", "mine"},
        {"bench", "step", "--device", "gpu"},
        {"bench", "step", "--device", "gpu", "--ranks", "2"},
        {"bench", "recorder", "--device", "gpu"},
        {"bench", "ops", "--device", "gpu"},
        {"bench", "ops", "--device", "gpu", "--json"},
        {"calibrate", "--device", "gpu"},
        {"calibrate", "--device", "gpu", "--ranks", "2", "--json"}}) {
    SCOPED_TRACE(testing::PrintToString(line));
    const CommandResult result = run_vitrine(line, folder.path());
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.error, "error: " + why + "\n");
    EXPECT_EQ(result.out, "");
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
      EXPECT_EQ(entry.path().filename(), "run.json") << "left behind";
    }
  }
}

TEST(GpuCommands, MoreRanksThanGpusAreRefusedBeforeOneStarts) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  const std::string ranks = std::to_string(gpu_devices().size() + 1);
  const ScratchFolder folder;
  Json run = tiny_run();
  run.erase("train_batch_size");
  run["train_micro_batch_size_per_gpu"] = 1;
  const std::string file = write_run(folder / "run.json", run);
  const CommandResult result =
      run_vitrine({"train", file, "--device", "gpu", "--ranks", ranks}, folder.path());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr(ranks + " ranks want a GPU each"));
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(GpuCommands, ACalibrationIsAProfileThatPlansTakeAsItIs) {
  if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  const ScratchFolder folder;
  const CommandResult more =
      run_vitrine({"calibrate", "--device", "gpu", "--ranks", "1000"}, folder.path());
  EXPECT_EQ(more.code, 1);
  EXPECT_THAT(more.error, HasSubstr("--ranks 1000: one GPU each is measured"));
  EXPECT_FALSE(fs::exists(folder / "profile.json"));
  const CommandResult made =
      run_vitrine({"calibrate", "--device", "gpu", "--quick", "--json"}, folder.path());
  ASSERT_EQ(made.code, 0) << made.error;
  const Json measured = parse_json(made.out, "out")["measured_gpus"];
  EXPECT_EQ(measured["name"], gpu_devices().front().name);
  bool fp8 = false;
  for (const Json& product : measured["products"]) fp8 = fp8 || product["fp8"].get<bool>();
  const GpuDescription gpu = gpu_devices().front();
  EXPECT_EQ(fp8, 10 * gpu.major + gpu.minor >= 89);
  EXPECT_EQ(measured["products"].size(), fp8 ? 8U : 4U);
  EXPECT_GT(measured["passes"].size(), 20U);
  EXPECT_EQ(measured["collectives"].empty(), gpu_devices().size() < 2);
  const CommandResult plan =
      run_vitrine({"plan", "qwen2.5-0.5b", "--gpus", "1", "--profile", "profile.json", "--json"},
                  folder.path());
  ASSERT_EQ(plan.code, 0) << plan.error;
  const Json planned = parse_json(plan.out, "out");
  EXPECT_THAT(planned["cluster"]["efficiency"]["era"].get<std::string>(), HasSubstr("measured"));
  EXPECT_GT(planned["prediction"]["step_ns"].get<double>(), 0);
}

// Under a launcher of others each rank speaks for itself.
TEST(GpuCommands, WithoutAGpuARankOfALauncherNamesItself) {
  const std::string why = why_no_gpu();
  if (why.empty()) GTEST_SKIP() << "this machine has a GPU: what is tested is a machine without";
  const ScratchFolder folder;
  const std::string run = write_run(folder / "run.json", tiny_run());
  for (const char* setting : {"RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "MASTER_PORT=1"}) {
    const std::string text = setting;
    setenv(text.substr(0, text.find('=')).c_str(), text.substr(text.find('=') + 1).c_str(), 1);
  }
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  const CommandResult result = run_vitrine({"train", run, "--device", "gpu"}, folder.path());
  for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"}) {
    unsetenv(name);
  }
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, testing::StartsWith("error on rank 1: "));
  EXPECT_THAT(result.error, HasSubstr(why));
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(Doctor, WithoutASubjectIsWrongUsage) { EXPECT_EQ(run_vitrine({"doctor"}).code, 2); }

TEST(Top, WithoutADriverSaysSoAndFailsOnlyWhereGpusAreWanted) {
  std::string why;
  if (Nvml::open(why))
    GTEST_SKIP() << "this machine has a driver: what is tested is a machine without";
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"top", "--once"}, {"top", "--gpus", "--once"}}) {
    const CommandResult result = run_vitrine(line);
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.error, "error: " + why + "\n");
  }
}

TEST(Top, ShowsARunOnceAsTextAndAsJson) {
  const ScratchFolder folder;
  write_text_file(folder / "run.json", R"({"train": {"steps": 20}})");
  write_text_file(folder / "metrics.jsonl",
                  "{\"step\":6,\"time\":5,\"loss\":2.5,\"tokens_per_s\":1000}\n");
  const CommandResult text = run_vitrine({"top", folder.path(), "--once"});
  EXPECT_EQ(text.code, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("step 7/20  loss 2.5"));
  const CommandResult json = run_vitrine({"top", folder.path(), "--once", "--json"});
  EXPECT_EQ(json.code, 0) << json.error;
  EXPECT_EQ(parse_json(json.out, "out")["run"]["step"], 6);
}

TEST(Top, NamesAFolderThatHoldsNoRun) {
  const CommandResult result = run_vitrine({"top", "no/such/folder", "--once"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("no/such/folder"));
}

}  // namespace
}  // namespace vitrine
