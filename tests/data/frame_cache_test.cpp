// Frame caches: round trip, windows within episodes, and every kind of damage named.
#include "data/frame_cache.h"

#include <fstream>

#include "core/error.h"
#include "core/sha256.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Frames of 2x2 pixels whose bytes are the frame's number; `lengths` gives the episodes.
void write_cache(const std::string& dir,
                 const std::vector<int64_t>& lengths,
                 bool overwrite = false) {
  FrameCacheMeta meta;
  meta.fps = 25;
  meta.source = "a test";
  meta.licence = "CC0-1.0";
  meta.action_count = 3;
  meta.generator = R"({"seed": 4})";
  FrameCacheWriter writer(dir, meta, 2, 2, Shape{1, 2}, overwrite);
  int32_t episode = 0;
  uint8_t number = 0;
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t, ++number) {
      const std::vector<uint8_t> frame(12, number);
      const int32_t action = number % 3;
      const float state[2] = {static_cast<float>(number), 0.5f};
      writer.append(episode, 1, frame.data(), &action, state);
    }
    ++episode;
  }
  writer.finish();
}

void replace_array(const std::string& path, std::vector<int32_t> values) {
  write_npy(path, {values.data(), Shape{static_cast<int64_t>(values.size())}, DType::kI32});
}

TEST(FrameCache, ReadsBackWhatWasWritten) {
  ScratchFolder folder;
  write_cache(folder / "c", {5, 3});
  const FrameCache cache = FrameCache::open(folder / "c");
  EXPECT_EQ(cache.frames(), 8);
  EXPECT_EQ(cache.height(), 2);
  EXPECT_EQ(cache.width(), 2);
  EXPECT_EQ(cache.meta().fps, 25);
  EXPECT_EQ(cache.meta().licence, "CC0-1.0");
  EXPECT_EQ(cache.meta().generator, R"({"seed":4})");
  ASSERT_EQ(cache.episodes().size(), 2u);
  EXPECT_EQ(cache.episodes()[1].begin, 5);
  EXPECT_EQ(cache.episodes()[1].end, 8);
  EXPECT_EQ(cache.frame(6)[11], 6);
  EXPECT_EQ(*cache.discrete_action(7), 1);
  EXPECT_EQ(cache.state_row(), (Shape{1, 2}));
  EXPECT_EQ(cache.state(6)[0], 6.0f);
  cache.verify();
}

TEST(FrameCache, KeepsContinuousActions) {
  ScratchFolder folder;
  FrameCacheMeta meta;
  meta.action_kind = FrameActions::kContinuous;
  meta.action_count = 2;
  FrameCacheWriter writer(folder / "c", meta, 1, 1);
  const uint8_t frames[6] = {};
  const float actions[4] = {0.5f, -1, 2, 3};
  writer.append(0, 2, frames, actions, nullptr);
  writer.finish();
  const FrameCache cache = FrameCache::open(folder / "c");
  EXPECT_FALSE(cache.has_state());
  EXPECT_EQ(cache.continuous_action(1)[1], 3.0f);
}

TEST(FrameCache, AppearsWholeOrNotAtAll) {
  ScratchFolder folder;
  {
    FrameCacheWriter writer(folder / "c", {}, 1, 1);
    const uint8_t frame[3] = {};
    const int32_t action = 0;
    writer.append(0, 1, frame, &action, nullptr);
    EXPECT_FALSE(std::filesystem::exists(folder / "c"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(FrameCache, IsReplacedOnlyWhenAsked) {
  ScratchFolder folder;
  write_cache(folder / "c", {5});
  EXPECT_CONTAINS(message_of<ConfigError>([&] { write_cache(folder / "c", {4}); }),
                  "exists already");
  EXPECT_EQ(FrameCache::open(folder / "c").frames(), 5);
  write_cache(folder / "c", {4}, true);
  EXPECT_EQ(FrameCache::open(folder / "c").frames(), 4);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(FrameCache, NamesWhatDoesNotFit) {
  ScratchFolder folder;
  const std::string dir = folder / "c";
  const auto refused = [&] { return message_of<ConfigError>([&] { FrameCache::open(dir); }); };
  write_cache(dir, {2, 2});
  replace_array(dir + "/episode.npy", {0, 1, 0, 1});
  EXPECT_CONTAINS(refused(), "episode 0 begins again at frame 2");
  write_cache(dir, {2, 2}, true);
  replace_array(dir + "/episode.npy", {0, 0, 1, 2});
  EXPECT_CONTAINS(refused(), "2 episodes, episode.npy has 3");
  write_cache(dir, {2, 2}, true);
  replace_array(dir + "/actions.npy", {0, 1, 3, 0});
  EXPECT_CONTAINS(refused(), "action 3 at frame 2, expected 0 to 2");
  write_cache(dir, {2, 2}, true);
  replace_array(dir + "/actions.npy", {0, 1, 2});
  EXPECT_CONTAINS(refused(), "expected i32 [4] by meta.json, got i32 [3]");
  write_cache(dir, {2, 2}, true);
  replace_array(dir + "/state.npy", {0, 1, 2, 3});
  EXPECT_CONTAINS(refused(), "state.npy: expected f32 [4, ...]");
  write_cache(dir, {2, 2}, true);
  replace_array(dir + "/frames.npy", {0, 1, 2, 3});
  EXPECT_CONTAINS(refused(), "frames.npy: expected u8");
}

TEST(FrameCache, RefusesForeignAndDamagedFolders) {
  ScratchFolder folder;
  const std::string dir = folder / "c";
  EXPECT_CONTAINS(message_of<IoError>([&] { FrameCache::open(dir); }),
                  "expected a frame-cache folder");
  EXPECT_CONTAINS(message_of<IoError>([&] { FrameCache::open(folder.path()); }), "no meta.json");
  write_cache(dir, {3});
  const std::string meta = read_text_file(dir + "/meta.json");
  write_text_file(dir + "/meta.json", "{\"format\": \"something\"}");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { FrameCache::open(dir); }), "format \"something\"");
  write_text_file(dir + "/meta.json", meta.substr(0, meta.size() / 2));
  EXPECT_CONTAINS(message_of<ConfigError>([&] { FrameCache::open(dir); }), "not valid JSON");
  write_text_file(dir + "/meta.json", meta);
  std::filesystem::resize_file(dir + "/frames.npy", 140);
  EXPECT_CONTAINS(message_of<IoError>([&] { FrameCache::open(dir); }), "truncated");
  std::filesystem::remove(dir + "/frames.npy");
  EXPECT_CONTAINS(message_of<IoError>([&] { FrameCache::open(dir); }), "frames.npy");
}

TEST(FrameCache, VerifyFindsASingleChangedByte) {
  ScratchFolder folder;
  write_cache(folder / "c", {3});
  {
    std::fstream file(folder / "c/frames.npy", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(140);
    file.put('\x77');
  }
  const FrameCache cache = FrameCache::open(folder / "c");
  EXPECT_CONTAINS(message_of<IoError>([&] { cache.verify(); }), "frames.npy: SHA-256");
}

TEST(Sha256, AgreesWithThePublishedVectors) {  // FIPS 180-4 examples
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(ClipIndex, HoldsEveryWindowThatStaysInItsEpisode) {
  ScratchFolder folder;
  const std::vector<int64_t> lengths = {7, 2, 4, 3, 9};
  write_cache(folder / "c", lengths);
  const FrameCache cache = FrameCache::open(folder / "c");
  for (const int64_t length : {1, 2, 3, 4, 8}) {
    for (const int64_t stride : {1, 2, 5}) {
      std::vector<int64_t> expected;
      int64_t begin = 0;
      for (const int64_t frames : lengths) {
        for (int64_t at = 0; at + length <= frames; at += stride) expected.push_back(begin + at);
        begin += frames;
      }
      const ClipIndex index(cache, length, stride);
      ASSERT_EQ(index.size(), static_cast<int64_t>(expected.size()));
      for (int64_t i = 0; i < index.size(); ++i) {
        EXPECT_EQ(index.first_frame(i), expected[static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(ClipIndex, SaysWhenNoEpisodeIsLongEnough) {
  ScratchFolder folder;
  write_cache(folder / "c", {4, 6});
  const FrameCache cache = FrameCache::open(folder / "c");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { ClipIndex(cache, 7, 1); }), "the longest has 6");
}

}  // namespace
}  // namespace vitrine
