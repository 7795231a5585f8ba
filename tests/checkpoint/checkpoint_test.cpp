// Checkpoints: any range comes back from any world size, crashes leave the last good one, damage is
// named.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/error.h"
#include "core/json.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

constexpr int64_t kElements = 7 * 11;

std::vector<float> values_of(int64_t step) {
  std::vector<float> out(kElements);
  std::iota(out.begin(), out.end(), static_cast<float>(1000 * step));
  return out;
}

// The tensor "w" (7 x 11) in uneven parts over `world` ranks: a master copy, and a parameter in
// bf16.
void save(
    const std::string& folder, int64_t step, int32_t world, int keep_last = 0, bool commit = true) {
  const std::vector<float> values = values_of(step);
  std::vector<bf16> halves;
  for (const float value : values) halves.push_back(to_bf16(value));
  std::vector<RankResult> results;
  std::unique_ptr<CheckpointWriter> first;
  for (int32_t rank = world - 1; rank >= 0; --rank) {
    auto writer = std::make_unique<CheckpointWriter>(folder, step, rank, world);
    const int64_t share = (kElements + world - 1) / world;
    const int64_t begin = std::min(kElements, rank * share),
                  end = std::min(kElements, begin + share);
    writer->add("w", StateKind::kMaster, {7, 11}, DType::kF32, begin, end, values.data() + begin);
    writer->add(
        "w", StateKind::kParameter, {7, 11}, DType::kBF16, begin, end, halves.data() + begin);
    results.push_back(RankResult::from_text(writer->finish_rank().to_text()));
    if (rank == 0) first = std::move(writer);
  }
  if (commit) first->commit(results, Json{{"data_position", step * 8}}, keep_last);
}

std::vector<float> read_all(const CheckpointReader& reader) {
  std::vector<float> out(kElements);
  reader.read("w", StateKind::kMaster, 0, kElements, DType::kF32, out.data());
  return out;
}

std::string message_of_open(const std::string& path) {
  try {
    CheckpointReader::open(path);
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpoint, AnyRangeComesBackWhateverWorldSizeWroteIt) {
  for (const int32_t world : {1, 2, 3, 5, 100}) {
    const TemporaryFolder folder;
    save(folder.path(), 12, world);
    const CheckpointReader reader = CheckpointReader::open(folder.path());
    EXPECT_EQ(reader.step(), 12);
    EXPECT_EQ(reader.world_size(), world);
    EXPECT_EQ(reader.extra()["data_position"], 96);
    EXPECT_EQ(reader.info("w", StateKind::kMaster).shape, (std::vector<int64_t>{7, 11}));
    EXPECT_EQ(read_all(reader), values_of(12));
    for (int64_t begin = 0; begin < kElements; begin += 5) {
      for (int64_t end = begin; end <= kElements; end += 7) {
        std::vector<float> part(static_cast<size_t>(end - begin));
        reader.read("w", StateKind::kMaster, begin, end, DType::kF32, part.data());
        for (int64_t i = begin; i < end; ++i) {
          ASSERT_EQ(part[static_cast<size_t>(i - begin)], values_of(12)[static_cast<size_t>(i)]);
        }
      }
    }
  }
}

TEST(Checkpoint, ConvertsToTheDtypeAskedFor) {
  const TemporaryFolder folder;
  save(folder.path(), 0, 2);
  const CheckpointReader reader = CheckpointReader::open(folder.path());
  std::vector<float> out(kElements);
  reader.read("w", StateKind::kParameter, 0, kElements, DType::kF32, out.data());
  EXPECT_EQ(out, values_of(0));  // whole numbers below 256 are exact in bf16
}

TEST(Checkpoint, IsNotThereBeforeItIsCommitted) {
  const TemporaryFolder folder;
  save(folder.path(), 10, 2);
  save(folder.path(), 20, 2, 0, false);
  EXPECT_EQ(CheckpointReader::open(folder.path()).step(), 10);
  save(folder.path(), 30, 2);
  EXPECT_EQ(CheckpointReader::open(folder.path()).step(), 30);
  // The leftover of step 20 was cleaned away by the save of step 30.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
  }
}

TEST(Checkpoint, ABrokenSaveOfTheSameStepByMoreRanksLeavesNoFiles) {
  const TemporaryFolder folder;
  save(folder.path(), 10, 5, 0, false);
  save(folder.path(), 10, 2);
  EXPECT_EQ(read_all(CheckpointReader::open(folder.path())), values_of(10));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-000010/rank00004.safetensors"));
}

TEST(Checkpoint, ReplacesAStepThatIsSavedAgain) {
  const TemporaryFolder folder;
  save(folder.path(), 10, 3);
  save(folder.path(), 10, 1);
  const CheckpointReader reader = CheckpointReader::open(folder.path());
  EXPECT_EQ(reader.world_size(), 1);
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
}

TEST(Checkpoint, KeepsTheLastOnesAndAlwaysItsOwn) {
  const TemporaryFolder folder;
  for (const int64_t step : {10, 20, 30, 40}) save(folder.path(), step, 1, 2);
  auto kept = list_checkpoints(folder.path());
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].first, 30);
  EXPECT_EQ(kept[1].first, 40);
  save(folder.path(), 15, 1, 1);
  kept = list_checkpoints(folder.path());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].first, 15);
}

TEST(Checkpoint, FallsBackToTheNewestWhenLatestPointsNowhere) {
  const TemporaryFolder folder;
  save(folder.path(), 10, 1);
  save(folder.path(), 20, 1);
  std::ofstream(folder / "latest") << "step-000099\n";
  EXPECT_EQ(CheckpointReader::open(folder.path()).step(), 20);
  std::filesystem::remove(folder / "latest");
  EXPECT_EQ(CheckpointReader::open(folder.path()).step(), 20);
  EXPECT_EQ(CheckpointReader::open(folder / "step-000010").step(), 10);
}

// Kills a process at many moments of its saves; whatever is found afterwards is whole.
TEST(Checkpoint, SurvivesAKillAtAnyMoment) {
  const TemporaryFolder folder;
  save(folder.path(), 1, 2);
  std::set<int64_t> found;
  for (int round = 0; round < 25; ++round) {
    int done[2];
    ASSERT_EQ(pipe(done), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int64_t step = 2 + round % 5;; step = step % 6 + 1) {
        save(folder.path(), step, 2, 2);
        if (write(done[1], "x", 1) != 1) _exit(1);
      }
    }
    // After 0, 1 or 2 whole saves and a moment that moves over the next one (syncs may be slow).
    char byte = 0;
    for (int saves = 0; saves < round % 3; ++saves) ASSERT_EQ(read(done[0], &byte, 1), 1);
    usleep(static_cast<useconds_t>(round * 700));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(done[0]);
    close(done[1]);
    const CheckpointReader reader = CheckpointReader::open(folder.path());
    EXPECT_EQ(read_all(reader), values_of(reader.step()));
    EXPECT_EQ(reader.extra()["data_position"], reader.step() * 8);
    found.insert(reader.step());
  }
  EXPECT_GT(found.size(), 1u);
}

TEST(Checkpoint, RefusesToCommitWithoutEveryRank) {
  const TemporaryFolder folder;
  CheckpointWriter writer(folder.path(), 5, 0, 2);
  const std::vector<float> values = values_of(5);
  writer.add("w", StateKind::kMaster, {7, 11}, DType::kF32, 0, kElements, values.data());
  try {
    writer.commit({writer.finish_rank()}, Json::object());
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
}

TEST(Checkpoint, RefusesRanksThatDisagreeAboutAShape) {
  const TemporaryFolder folder;
  const std::vector<float> values = values_of(5);
  CheckpointWriter a(folder.path(), 5, 0, 2), b(folder.path(), 5, 1, 2);
  a.add("w", StateKind::kMaster, {7, 11}, DType::kF32, 0, 10, values.data());
  b.add("w", StateKind::kMaster, {11, 7}, DType::kF32, 10, kElements, values.data());
  EXPECT_THROW(a.commit({a.finish_rank(), b.finish_rank()}, Json::object()), ConfigError);
  EXPECT_THROW(a.add("x", StateKind::kMaster, {4}, DType::kF32, 2, 5, values.data()), ShapeError);
}

TEST(Checkpoint, NamesDamageAndTheOtherCheckpoints) {
  const TemporaryFolder folder;
  save(folder.path(), 10, 2);
  save(folder.path(), 20, 2);
  const std::string file = folder / "step-000020/rank00001.safetensors";
  const std::string good = read_text_file(file);

  std::string flipped = good;
  flipped[flipped.size() - 3] = static_cast<char>(flipped[flipped.size() - 3] ^ 1);
  write_text_file(file, flipped);
  std::string message = message_of_open(folder.path());
  EXPECT_NE(message.find("rank00001.safetensors is corrupted"), std::string::npos) << message;
  EXPECT_NE(message.find("step-000010"), std::string::npos) << message;
  EXPECT_NO_THROW(CheckpointReader::open(folder.path(), CheckpointReader::Verify::kSizes));

  write_text_file(file, good.substr(0, good.size() - 4));
  EXPECT_NE(message_of_open(folder.path()).find("was cut"), std::string::npos);
  std::filesystem::remove(file);
  EXPECT_NE(message_of_open(folder.path()).find("is missing"), std::string::npos);
  write_text_file(file, good);
  EXPECT_EQ(message_of_open(folder.path()), "");

  const std::string manifest = folder / "step-000020/manifest.json";
  const std::string text = read_text_file(manifest);
  write_text_file(manifest, text.substr(0, text.size() / 2));
  EXPECT_NE(message_of_open(folder.path()).find("not a whole manifest"), std::string::npos);
  EXPECT_NE(message_of_open(folder / "nothing").find("no such folder"), std::string::npos);
  std::filesystem::create_directory(folder / "empty");
  EXPECT_NE(message_of_open(folder / "empty").find("manifest.json"), std::string::npos);
}

TEST(Checkpoint, ManifestsWithForeignValuesAreRefused) {
  const TemporaryFolder folder;
  save(folder.path(), 1, 1);
  const std::string manifest = folder / "step-000001/manifest.json";
  const std::string good = read_text_file(manifest);
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"\"version\": 1", "\"version\": 2", "version 2"},
      {"vitrine-checkpoint", "other", "format"},
      {"rank00000.safetensors", "../rank0", "plain file name"},
      {"\"shape\":[7,11]", "\"shape\":[7,1]", "outside its tensor"},
      {"\"shape\":[7,11]", "\"shape\":[-7,11]", "not a shape"},
      {"\"kind\":\"master\"", "\"kind\":\"mister\"", "mister"},
      {"\"dtype\":\"f32\"", "\"dtype\":\"f64\"", "its file"},
      {"\"pieces\":[[0", "\"pieces\":[[5", "outside"},
      {"\"step\": 1", "\"step\": \"one\"", "step"},
      {"\"world_size\": 1", "\"world_size\": 1, \"more\": 2", "more"},
  };
  for (const auto& [from, to, expected] : cases) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), std::strlen(from), to);
    write_text_file(manifest, text);
    EXPECT_NE(message_of_open(folder.path()).find(expected), std::string::npos)
        << to << ": " << message_of_open(folder.path());
  }
}

TEST(Checkpoint, SaysWhichElementNobodySaved) {
  const TemporaryFolder folder;
  const std::vector<float> values = values_of(1);
  CheckpointWriter writer(folder.path(), 1, 0, 1);
  writer.add("w", StateKind::kMaster, {7, 11}, DType::kF32, 0, 30, values.data());
  writer.add("w", StateKind::kMaster, {7, 11}, DType::kF32, 40, kElements, values.data() + 40);
  writer.commit({writer.finish_rank()}, Json::object());
  const CheckpointReader reader = CheckpointReader::open(folder.path());
  std::vector<float> out(kElements);
  reader.read("w", StateKind::kMaster, 40, 50, DType::kF32, out.data());
  EXPECT_EQ(out[0], values[40]);
  try {
    reader.read("w", StateKind::kMaster, 0, kElements, DType::kF32, out.data());
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("element 30"), std::string::npos) << error.what();
  }
  EXPECT_THROW(reader.read("w", StateKind::kMaster, 0, kElements + 1, DType::kF32, out.data()),
               ShapeError);
  EXPECT_THROW(reader.read("ww", StateKind::kMaster, 0, 1, DType::kF32, out.data()), IoError);
  EXPECT_THROW(reader.read("w", StateKind::kExpAvg, 0, 1, DType::kF32, out.data()), IoError);
}

}  // namespace
}  // namespace vitrine
