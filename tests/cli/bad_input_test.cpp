// Bad input of every kind gives one clear paragraph, an exit code, and nothing half-written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstring>

#include "cli/tiny_run.h"
#include "support/command.h"
#include "support/shell.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class BadInput : public testing::Test {
 protected:
  std::string run_file(const Json& run) { return write_run(folder_ / "run.json", run); }

  // One paragraph that begins with "error: ", and no temporary file left anywhere below the folder.
  std::string refused(const std::vector<std::string>& arguments, int code = 1) {
    const CommandResult result = run_vitrine(arguments, folder_.path());
    EXPECT_EQ(result.code, code) << result.out << result.error;
    EXPECT_THAT(result.error, StartsWith("error"));
    EXPECT_THAT(result.error, Not(HasSubstr("\n\n")));
    EXPECT_LE(std::count(result.error.begin(), result.error.end(), '\n'), 2) << result.error;
    EXPECT_THAT(result.error, Not(HasSubstr("terminate")));
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("tmp"))) << "half-written";
    }
    return result.error;
  }
  std::string refused_run(const Json& run) {
    const std::string error = refused({"train", run_file(run), "--run", "out"});
    // Mending the file and trying again must not meet the remains of this attempt.
    EXPECT_FALSE(fs::exists(folder_ / "out/run.json"));
    return error;
  }

  ScratchFolder folder_;
};

TEST_F(BadInput, CalibrationIsRefusedBeforeItMeasures) {
  EXPECT_THAT(refused({"calibrate", "--out", "nowhere/profile.json"}),
              AllOf(HasSubstr("nowhere"), HasSubstr("cannot be written to")));
  EXPECT_THAT(refused({"calibrate", "--out", "."}), HasSubstr("is a folder"));
  EXPECT_THAT(refused({"calibrate", "--ranks", "1"}, 2), HasSubstr("at least 2"));
  EXPECT_THAT(refused({"calibrate", "--ranks", "100000"}, 2), HasSubstr("--ranks 100000: on"));
  EXPECT_THAT(refused({"calibrate", "--device", "gpu", "--out", "."}), HasSubstr("is a folder"));
}

TEST_F(BadInput, UnknownKeysNameTheNearestKnownOne) {
  Json run = tiny_run();
  run["train"]["step"] = 3;
  EXPECT_THAT(refused_run(run), AllOf(HasSubstr("train.step"), HasSubstr("\"steps\"")));
  run = tiny_run();
  run["zero_optimisation"] = {{"stage", 1}};
  EXPECT_THAT(refused_run(run), HasSubstr("\"zero_optimization\""));
  run = tiny_run();
  run["model"]["layer"] = 3;
  EXPECT_THAT(refused_run(run), HasSubstr("\"layers\""));
}

TEST_F(BadInput, WrongTypesNameKeyAndBothTypes) {
  Json run = tiny_run();
  run["train"]["steps"] = "many";
  EXPECT_THAT(refused_run(run), AllOf(HasSubstr("train.steps"), HasSubstr("many")));
  run = tiny_run();
  run["model"]["layers"] = {1, 2};
  EXPECT_THAT(refused_run(run), HasSubstr("model.layers"));
}

TEST_F(BadInput, ImpossibleBatchesShowTheArithmetic) {
  Json run = tiny_run();
  run["train_micro_batch_size_per_gpu"] = 3;
  EXPECT_THAT(refused_run(run),
              AllOf(HasSubstr("train_batch_size"), HasSubstr("4"), HasSubstr("3")));
}

TEST_F(BadInput, MissingAndBrokenFilesAreNamed) {
  EXPECT_THAT(refused({"train", "nowhere.json"}), HasSubstr("nowhere.json"));
  EXPECT_THAT(refused({"explain", "nowhere.json"}), HasSubstr("nowhere.json"));
  EXPECT_THAT(refused({"report", "nowhere"}), HasSubstr("nowhere"));
  EXPECT_THAT(refused({"rollout", "nowhere"}), HasSubstr("nowhere"));
  EXPECT_THAT(refused({"data", "tokens", "nowhere.txt", "-o", "x.bin"}), HasSubstr("nowhere.txt"));
  EXPECT_FALSE(fs::exists(folder_ / "x.bin"));
  write_text_file(folder_ / "half.json", R"({"model": {"family": "deco)");
  EXPECT_THAT(refused({"train", "half.json"}), HasSubstr("half.json"));
}

TEST_F(BadInput, AnEmptyOrMissingDataSetIsNamed) {
  Json run = tiny_run();
  run["data"] = {{"kind", "tokens"}, {"path", folder_ / "empty"}};
  fs::create_directory(folder_ / "empty");
  EXPECT_THAT(refused_run(run), AllOf(HasSubstr("empty"), HasSubstr("no *.bin")));
  run["data"]["path"] = folder_ / "not_there";
  EXPECT_THAT(refused_run(run), HasSubstr("not_there"));
  run["data"]["kind"] = "frames";
  EXPECT_THAT(refused_run(run), HasSubstr("frames"));
}

// A token file in llm.c's layout, which states no vocabulary, with one id too large.
TEST_F(BadInput, BallsOfOtherSettingsAreNotTakenForTheOnesAskedFor) {
  Json run = read_json_file("examples/tiny_world.json");
  run["data"]["path"] = folder_ / "balls";
  run["data"]["eval_path"] = folder_ / "held_out";
  run["data"]["episodes"] = 4;
  run["data"]["eval_episodes"] = 2;
  run["train"] = {{"steps", 1}, {"schedule", "constant"}, {"eval_batches", 1}};
  const CommandResult first = run_vitrine({"train", run_file(run), "--run", "one"}, folder_.path());
  ASSERT_EQ(first.code, 0) << first.error;
  run["data"]["episodes"] = 5;
  const std::string error = refused({"train", run_file(run), "--run", "two"});
  EXPECT_THAT(error, AllOf(HasSubstr("balls"), HasSubstr("episodes"), HasSubstr("data.path")));
}

TEST_F(BadInput, ATokenBeyondTheVocabularyIsNamedWithItsPlace) {
  std::string bytes(1024, '\0');
  const int32_t header[] = {20240520, 1, 400};
  std::memcpy(bytes.data(), header, sizeof(header));
  for (int i = 0; i < 400; ++i) {
    const auto id = static_cast<uint16_t>(i == 33 ? 5000 : i % 60);
    bytes.append(reinterpret_cast<const char*>(&id), 2);
  }
  write_text_file(folder_ / "tokens.bin", bytes);
  Json run = tiny_run();
  run["data"] = {{"kind", "tokens"}, {"path", folder_ / "tokens.bin"}};
  run["train"]["steps"] = 40;  // reads every window
  const std::string error = refused({"train", run_file(run), "--run", "out", "--quiet"});
  EXPECT_THAT(error, AllOf(HasSubstr("token 5000 at position 33"), HasSubstr("vocabulary of 64")));
  EXPECT_FALSE(fs::exists(folder_ / "out/result.json"));
}

TEST_F(BadInput, ARunFolderThatHoldsARunIsKept) {
  const std::string file = run_file(tiny_run());
  ASSERT_EQ(run_vitrine({"train", file, "--run", "out", "--quiet"}, folder_.path()).code, 0);
  const std::string before = read_text_file(folder_ / "out/result.json");
  EXPECT_THAT(refused({"train", file, "--run", "out", "--quiet"}),
              AllOf(HasSubstr("--run"), HasSubstr("--resume")));
  EXPECT_EQ(read_text_file(folder_ / "out/result.json"), before);
}

TEST_F(BadInput, ACorruptedCheckpointEndsAResumeAndNamesTheFile) {
  const std::string file = run_file(tiny_run());
  ASSERT_EQ(run_vitrine({"train", file, "--run", "out", "--quiet"}, folder_.path()).code, 0);
  const std::string part = folder_ / "out/checkpoints/step-000003/rank00000.safetensors";
  std::string bytes = read_text_file(part);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 8);
  write_text_file(part, bytes);
  EXPECT_THAT(refused({"train", file, "--run", "out", "--resume", "--set", "train.steps=6"}),
              HasSubstr("rank00000.safetensors"));
  fs::resize_file(part, bytes.size() - 10);
  EXPECT_THAT(refused({"train", file, "--run", "out", "--resume", "--set", "train.steps=6"}),
              HasSubstr("rank00000.safetensors"));
}

TEST_F(BadInput, AFullDiskEndsTheRunAndKeepsTheLastCheckpoint) {
  const std::string disk = folder_ / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=600k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root: " << std::strerror(errno);
  }
  Json run = tiny_run();
  run["train"]["steps"] = 60;
  run["train"]["checkpoint"] = {{"every", 1}, {"keep", 0}};
  const CommandResult result =
      run_vitrine({"train", run_file(run), "--run", disk + "/out", "--quiet"}, folder_.path());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, AllOf(StartsWith("error"), HasSubstr("No space left on device")));
  std::string latest;
  try {
    latest = read_text_file(disk + "/out/checkpoints/latest");
    latest.pop_back();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_TRUE(fs::exists(disk + "/out/checkpoints/" + latest + "/manifest.json")) << latest;
  umount2(disk.c_str(), MNT_DETACH);
}

TEST_F(BadInput, ATruncatedVideoIsRefusedByName) {
  if (run_shell("ffmpeg -version").second != 0) GTEST_SKIP() << "no ffmpeg to make a video with";
  const std::string film = folder_ / "film.mp4";
  ASSERT_EQ(
      run_shell(
          "ffmpeg -v error -f lavfi -i testsrc=size=64x48:rate=10 -t 3 -movflags +faststart " +
          film)
          .second,
      0);
  EXPECT_EQ(run_vitrine(
                {"data", "video", film, "-o", folder_ / "whole", "--height", "24", "--width", "24"})
                .code,
            0);
  fs::resize_file(film, fs::file_size(film) * 2 / 3);
  EXPECT_THAT(refused({"data", "video", film, "-o", "cut", "--height", "24", "--width", "24"}),
              AllOf(HasSubstr("film.mp4"), HasSubstr("truncated")));
  EXPECT_FALSE(fs::exists(folder_ / "cut"));
  EXPECT_THAT(refused({"data", "video", film, "-o", "whole"}), HasSubstr("exists already"));
}

TEST_F(BadInput, SeveralRanksStopTogetherAndSayWhy) {
  Json run = tiny_run();
  run["data"] = {{"kind", "tokens"}, {"path", folder_ / "not_there"}};
  const CommandResult result =
      run_vitrine({"train", run_file(run), "--ranks", "2", "--run", "out"}, folder_.path());
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("not_there"));
  EXPECT_FALSE(fs::exists(folder_ / "out/run.json"));
}

TEST_F(BadInput, WrongUsageHasExitCode2) {
  const std::string file = run_file(tiny_run());
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {"trian"},
                                                    {"train"},
                                                    {"train", file, "--rank", "2"},
                                                    {"train", file, "--ranks", "0"},
                                                    {"train", file, "--ranks", "two"},
                                                    {"bench", "everything"},
                                                    {"data"},
                                                    {"data", "tokens", file},
                                                    {"explain", file, "--rank", "7"}}) {
    const CommandResult result = run_vitrine(arguments, folder_.path());
    EXPECT_EQ(result.code, 2) << (arguments.empty() ? "" : arguments.back()) << result.out
                              << result.error;
    EXPECT_NE(result.error, "");
  }
}

}  // namespace
}  // namespace vitrine
