// kill -9: of one rank, and of a whole run at any moment of saving.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "cli/tiny_run.h"
#include "support/command.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

std::string read_any(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool happens(const std::function<bool()>& condition, milliseconds patience) {
  const auto end = steady_clock::now() + patience;
  while (!condition()) {
    if (steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

// The processes whose environment sets RANK, by rank, among the children of `launcher`.
std::map<int, pid_t> ranks_of(pid_t launcher) {
  std::map<int, pid_t> ranks;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = read_any(entry.path() / "status");
    if (status.find("\nPPid:\t" + std::to_string(launcher) + "\n") == std::string::npos) continue;
    const std::string environment = std::string(1, '\0') + read_any(entry.path() / "environ");
    const size_t at = environment.find(std::string("\0RANK=", 6));
    if (at != std::string::npos)
      ranks[std::atoi(environment.c_str() + at + 6)] = std::atoi(pid.c_str());
  }
  return ranks;
}

int64_t steps_logged(const std::string& run_folder) {
  const std::string text = read_any(run_folder + "/metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Kill, ARankThatDiesInMidStepEndsTheRunAndIsNamed) {
  const ScratchFolder folder;
  Json run = tiny_run();
  run["train_batch_size"] = 8;
  run["train"] = {{"steps", 1000000}};
  run["zero_optimization"] = {{"stage", 3}};
  const std::string file = write_run(folder / "run.json", run), out = folder / "out";
  RunningCommand command({"train", file, "--ranks", "4", "--run", out}, folder.path());
  ASSERT_TRUE(happens([&] { return steps_logged(out) >= 5; }, seconds(60))) << command.error();
  const auto ranks = ranks_of(command.pid());
  ASSERT_EQ(ranks.size(), 4u);
  kill(ranks.at(2), SIGKILL);
  const auto code = command.wait(seconds(30));
  ASSERT_TRUE(code.has_value()) << "still running after 30 s";
  EXPECT_NE(*code, 0);
  EXPECT_THAT(command.error(), AllOf(HasSubstr("rank 2"), HasSubstr("signal 9")));
  // Whoever was in a collective with it says which one, in which step, and who is missing.
  int named = 0;
  for (const int rank : {0, 1, 3}) {
    const std::string log = read_any(out + "/log/rank" + std::to_string(rank) + ".log");
    static const std::regex sentence(
        R"(error on rank \d: \w+ \([^()]+, step \d+, group '[^']+'\): [^\n]*rank 2)");
    named += std::regex_search(log, sentence);
  }
  EXPECT_GE(named, 1) << read_any(out + "/log/rank0.log") << command.error();
  EXPECT_TRUE(happens([&] { return ranks_of(command.pid()).empty(); }, seconds(5)));
}

// Starts, kills and resumes one run `kills` times, always from its newest good checkpoint.
void survive(int kills, const std::vector<std::string>& more, uint32_t seed) {
  const ScratchFolder folder;
  Json run = tiny_run();
  run["train"] = {{"steps", 1000000}, {"checkpoint", {{"every", 1}, {"keep", 2}}}};
  const std::string file = write_run(folder / "run.json", run), out = folder / "out";
  std::vector<std::string> arguments = {"train", file, "--run", out, "--resume", "--quiet"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::minstd_rand random(seed);
  int64_t last = 0;
  const auto newest = [&] {
    const auto all = list_checkpoints(out + "/checkpoints");
    return all.empty() ? int64_t{0} : all.back().first;
  };
  for (int i = 0; i < kills; ++i) {
    const int64_t before = newest();
    RunningCommand command(arguments, folder.path());
    // It has gone on from the last checkpoint once there is a newer one.
    ASSERT_TRUE(
        happens([&] { return newest() > before || command.wait(milliseconds(0)); }, seconds(60)));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
    const auto ranks = ranks_of(command.pid());
    command.kill_now();
    for (const auto& [rank, pid] : ranks) {
      ASSERT_TRUE(happens([&, pid = pid] { return kill(pid, 0) != 0; }, seconds(10)))
          << "rank " << rank << " lives on";
    }
    ASSERT_EQ(command.error(), "") << "kill " << i;
    const CheckpointReader good = CheckpointReader::open(out + "/checkpoints");  // reads all hashes
    // Killed between a commit and its entry in `latest`, a run goes on from the one before.
    ASSERT_GE(good.step(), before);
    ASSERT_LE(newest() - good.step(), 1);
    last = good.step();
  }
  arguments.insert(arguments.end(), {"--set", "train.steps=" + std::to_string(last + 3)});
  const CommandResult end = run_vitrine(arguments, folder.path());
  EXPECT_EQ(end.code, 0) << end.error;
  EXPECT_EQ(CheckpointReader::open(out + "/checkpoints").step(), last + 3);
  // keep = 2, and what broken saves left is gone.
  EXPECT_EQ(list_checkpoints(out + "/checkpoints").size(), 2u);
  for (const auto& entry : fs::directory_iterator(out + "/checkpoints")) {
    EXPECT_EQ(entry.path().filename().string().find("tmp"), std::string::npos) << entry.path();
  }
  // The log of steps has each once, in order.
  std::istringstream lines(read_any(out + "/metrics.jsonl"));
  int64_t expected = 0;
  for (std::string line; std::getline(lines, line); ++expected) {
    ASSERT_EQ(parse_json(line, "metrics")["step"].get<int64_t>(), expected);
  }
  EXPECT_EQ(expected, last + 3);
}

TEST(Kill, ARunSurvivesFiveKillsWhileSaving) { survive(5, {}, 1); }

TEST(Kill, TwoRanksSurviveTwoKillsWhileSaving) { survive(2, {"--ranks", "2"}, 2); }

TEST(KillSlow, ARunSurvivesTwentyKillsWhileSaving) { survive(20, {"--ranks", "2"}, 3); }

TEST(Kill, AResumeAfterAKillInTheVeryFirstSaveStartsFromTheBeginning) {
  const ScratchFolder folder;
  const std::string file = write_run(folder / "run.json", tiny_run()), out = folder / "out";
  fs::create_directories(out + "/checkpoints/.step-000001.tmp");
  write_text_file(out + "/checkpoints/.step-000001.tmp/rank00000.safetensors", "half");
  write_text_file(out + "/run.json", "{}");
  const CommandResult result =
      run_vitrine({"train", file, "--run", out, "--resume"}, folder.path());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("starting from the beginning"));
  EXPECT_EQ(CheckpointReader::open(out + "/checkpoints").step(), 3);
}

}  // namespace
}  // namespace vitrine
