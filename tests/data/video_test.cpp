// Video import, on real filmed clips where Debian's python3-mecavideo has put them, and on damaged
// ones.
#include "data/video.h"

#include <cstdlib>
#include <numeric>

#include "core/error.h"
#include "data/action_csv.h"
#include "data/frame_cache.h"
#include "support/scratch.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

const std::string kClips = "/usr/share/pymecavideo/data/video";

class Video : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kClips)) GTEST_SKIP() << "Debian's python3-mecavideo is not installed";
    options_.output = folder_ / "cache";
    options_.height = options_.width = 24;
  }
  // A copy of a clip's first `share`.
  std::string cut(const std::string& name, double share) {
    const std::string bytes = read_text_file(kClips + "/" + name);
    write_text_file(
        folder_ / name,
        bytes.substr(0, static_cast<size_t>(static_cast<double>(bytes.size()) * share)));
    return folder_ / name;
  }
  std::string copy(const std::string& name) { return cut(name, 1); }
  FrameCache import() {
    summary_ = import_video(options_);
    return FrameCache::open(options_.output);
  }
  template <typename E>
  std::string refused() {
    const std::string message = message_of<E>([&] { import_video(options_); });
    EXPECT_FALSE(fs::exists(options_.output));
    return message;
  }

  ScratchFolder folder_;
  VideoOptions options_;
  VideoSummary summary_;
};

TEST_F(Video, EveryFileOfAFolderBecomesOneEpisode) {
  options_.inputs = {kClips};
  const FrameCache cache = import();
  cache.verify();
  // Frame counts by ffprobe -count_frames, in order of name.
  const std::vector<int64_t> frames = {34, 26, 28, 255, 295, 16, 16, 25};
  ASSERT_EQ(cache.episodes().size(), frames.size());
  for (size_t i = 0; i < frames.size(); ++i) EXPECT_EQ(cache.episodes()[i].frames(), frames[i]);
  EXPECT_EQ(summary_.frames, std::accumulate(frames.begin(), frames.end(), int64_t{0}));
  EXPECT_EQ(summary_.decode_errors, 0);
  EXPECT_EQ(summary_.files[3].codec, "h264");
  EXPECT_EQ(summary_.files[3].fps, 25);
  EXPECT_EQ(cache.meta().fps, 0);  // they differ
  EXPECT_EQ(cache.meta().action_count, 1);
  EXPECT_CONTAINS(cache.meta().source, "balle-jbart.mp4");
}

TEST_F(Video, FramesShowThePictureAndChangeOverTime) {
  options_.inputs = {kClips + "/balle-jbart.mp4"};
  options_.height = 48;
  options_.width = 64;
  const FrameCache cache = import();
  EXPECT_EQ(cache.meta().fps, 25);
  int64_t low = 255, high = 0, changed = 0;
  for (int64_t i = 0; i < cache.frame_bytes(); ++i) {
    const int64_t value = cache.frame(100)[i];
    low = std::min(low, value);
    high = std::max(high, value);
    changed += std::abs(value - cache.frame(101)[i]) > 20;
  }
  EXPECT_GT(high - low, 100);
  EXPECT_GT(changed, 0);                        // something moves,
  EXPECT_LT(changed, cache.frame_bytes() / 4);  // the scene stays
}

TEST_F(Video, FramesAreThoseOfTheFfmpegProgram) {
  if (std::system("ffmpeg -version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no ffmpeg program";
  options_.inputs = {kClips + "/balle-jbart.mp4"};
  options_.height = 40;
  options_.width = 60;
  options_.fit = VideoFit::kStretch;
  const FrameCache cache = import();
  const std::string command = "ffmpeg -loglevel error -i " + options_.inputs[0] +
                              " -vf scale=60:40:flags=bicubic+accurate_rnd+bitexact,format=rgb24"
                              " -frames:v 50 -f rawvideo " +
                              (folder_ / "raw");
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string raw = read_text_file(folder_ / "raw");
  ASSERT_EQ(raw.size(), 50u * 40 * 60 * 3);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(cache.frame(0)), raw.size()), raw);
}

TEST_F(Video, LetterboxKeepsTheWholePictureAndCropFillsTheFrame) {
  options_.inputs = {kClips + "/balle-jbart.mp4"};  // 4:3
  options_.height = options_.width = 64;
  const auto row_sum = [](const FrameCache& cache, int64_t row) {
    const uint8_t* begin = cache.frame(0) + row * 64 * 3;
    return std::accumulate(begin, begin + 64 * 3, int64_t{0});
  };
  const FrameCache crop = import();
  EXPECT_GT(row_sum(crop, 0), 0);
  options_.output = folder_ / "letterbox";
  options_.fit = VideoFit::kLetterbox;
  const FrameCache letterbox = import();
  EXPECT_EQ(row_sum(letterbox, 0), 0);
  EXPECT_EQ(row_sum(letterbox, 63), 0);
  EXPECT_GT(row_sum(letterbox, 32), 0);
}

TEST_F(Video, KeepsEveryNthFrameOrATargetRate) {
  options_.inputs = {kClips + "/balle-jbart.mp4"};
  const FrameCache all = import();
  options_.output = folder_ / "stride";
  options_.frame_stride = 10;
  const FrameCache stride = import();
  EXPECT_EQ(stride.frames(), 26);
  EXPECT_EQ(stride.meta().fps, 2.5);
  EXPECT_TRUE(std::equal(stride.frame(3), stride.frame(3) + stride.frame_bytes(), all.frame(30)));
  options_.output = folder_ / "rate";
  options_.frame_stride = 1;
  options_.target_fps = 10;
  const FrameCache rate = import();
  EXPECT_EQ(rate.frames(), 102);  // 10.16 s, ticks 0 to 101
  EXPECT_EQ(rate.meta().fps, 10);
  options_.output = folder_ / "none";
  options_.target_fps = 30;
  EXPECT_CONTAINS(refused<ConfigError>(), "fewer than the target rate of 30");
  options_.frame_stride = 2;
  EXPECT_CONTAINS(refused<ConfigError>(), "exclude each other");
}

TEST_F(Video, TruncatedFilesAreRefusedByName) {
  for (const auto& entry : fs::directory_iterator(kClips)) {
    const std::string name = entry.path().filename();
    for (const double share : {0.1, 0.5, 0.8, 0.95}) {
      options_.inputs = {cut(name, share)};
      SCOPED_TRACE(name + " " + std::to_string(share));
      const std::string message = refused<IoError>();
      EXPECT_CONTAINS(message, name);
      EXPECT_CONTAINS(message, "cut off");
    }
  }
}

TEST_F(Video, TruncationIsSeenInEveryContainerThatStatesItsLength) {
  if (std::system("ffmpeg -version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no ffmpeg program";
  for (const std::string name : {"a.mkv", "a.flv", "a.mp4"}) {
    SCOPED_TRACE(name);
    const std::string path = folder_ / name;
    // With the index in front, so that a cut-off mp4 still opens.
    const std::string flags = name == "a.mp4" ? " -movflags faststart " : " ";
    const std::string command =
        "ffmpeg -loglevel error -i " + kClips + "/balle-jbart.mp4 -c copy -an" + flags + path;
    ASSERT_EQ(std::system(command.c_str()), 0);
    options_.inputs = {path};
    options_.output = folder_ / ("of-" + name);
    EXPECT_EQ(import().frames(), 255);
    options_.output = folder_ / "cache";
    const std::string bytes = read_text_file(path);
    for (const size_t tenth : {3, 6, 9}) {
      write_text_file(path, bytes.substr(0, bytes.size() * tenth / 10));
      EXPECT_CONTAINS(refused<IoError>(), "cut off");
    }
  }
}

TEST_F(Video, TruncatedFilesAreTakenWhenAllowedAndSayWhatWasLost) {
  options_.inputs = {cut("Force_constante.avi", 0.8)};
  options_.allow_truncated = true;
  const FrameCache cache = import();
  EXPECT_TRUE(summary_.files[0].truncated);
  EXPECT_GT(summary_.decode_errors, 0);
  EXPECT_LT(cache.frames(), 26);
  EXPECT_CONTAINS(cache.meta().generator, "\"truncated\":true");
}

TEST_F(Video, DamageInTheMiddleIsCountedAndSplitsTheEpisode) {
  std::string bytes = read_text_file(kClips + "/balle1-vp9.avi");
  const size_t middle = bytes.size() / 2;
  // The marker bits of a VP9 frame begin its packet ("00dc" and four bytes of size come before it).
  const size_t packet = bytes.find("00dc", middle);
  ASSERT_NE(packet, std::string::npos);
  bytes.replace(packet + 8, 8, std::string(8, '\0'));
  write_text_file(folder_ / "damaged.avi", bytes);
  options_.inputs = {folder_ / "damaged.avi"};
  const FrameCache cache = import();
  EXPECT_GE(summary_.decode_errors, 1);
  EXPECT_EQ(summary_.files[0].decode_errors, summary_.decode_errors);
  EXPECT_LT(cache.frames(), 295);
  EXPECT_GE(cache.episodes().size(), 2u);
}

TEST_F(Video, ForeignAndEmptyInputsAreRefusedByName) {
  write_text_file(folder_ / "empty.mp4", "");
  write_text_file(folder_ / "notes.mp4", "these are words, not pictures\n");
  options_.inputs = {folder_ / "empty.mp4"};
  EXPECT_CONTAINS(refused<IoError>(), "empty.mp4: the file is empty");
  options_.inputs = {folder_ / "notes.mp4"};
  EXPECT_CONTAINS(refused<IoError>(), "notes.mp4: not a video file");
  options_.inputs = {folder_ / "none.mp4"};
  EXPECT_CONTAINS(refused<IoError>(), "none.mp4: expected a video file");
  options_.inputs = {kClips + "/g1.avi", folder_ / "notes.mp4"};
  EXPECT_CONTAINS(refused<IoError>(), "notes.mp4");
  fs::create_directory(folder_ / "sub");
  options_.inputs = {folder_ / "sub"};
  EXPECT_CONTAINS(refused<ConfigError>(), "holds no video file");
  options_.inputs = {};
  EXPECT_CONTAINS(refused<ConfigError>(), "no video file was given");
}

TEST_F(Video, ActionsComeFromTheFileBesideIt) {
  std::string rows = "action\n";
  for (int i = 0; i < 16; ++i) rows += std::to_string(i % 4) + "\n";
  options_.inputs = {copy("g1.avi")};
  write_text_file(folder_ / "g1.actions.csv", rows);
  options_.frame_stride = 3;
  const FrameCache cache = import();
  EXPECT_EQ(cache.meta().action_kind, FrameActions::kDiscrete);
  EXPECT_EQ(cache.meta().action_count, 4);
  ASSERT_EQ(cache.frames(), 6);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(*cache.discrete_action(i), 3 * i % 4);
}

TEST_F(Video, ActionsOfSeveralColumnsAreContinuous) {
  std::string rows;
  for (int i = 0; i < 16; ++i) rows += std::to_string(i) + ", -0.5\r\n";
  options_.inputs = {copy("g1.avi")};
  write_text_file(folder_ / "g1.actions.csv", rows);
  const FrameCache cache = import();
  EXPECT_EQ(cache.meta().action_kind, FrameActions::kContinuous);
  EXPECT_EQ(cache.meta().action_count, 2);
  EXPECT_EQ(cache.continuous_action(9)[0], 9);
  EXPECT_EQ(cache.continuous_action(9)[1], -0.5f);
}

TEST_F(Video, ActionsThatDoNotFitTheFramesAreRefused) {
  options_.inputs = {copy("g1.avi"), copy("g2.avi")};
  write_text_file(folder_ / "g1.actions.csv", "0\n1\n0\n");
  EXPECT_CONTAINS(refused<ConfigError>(), "g2.avi has no ");
  options_.inputs = {folder_ / "g1.avi"};
  EXPECT_CONTAINS(refused<ConfigError>(), "3 rows, but");
  write_text_file(folder_ / "g1.actions.csv", "0\nleft\n");
  EXPECT_CONTAINS(refused<ConfigError>(),
                  "g1.actions.csv, line 2: expected a number, got \"left\"");
}

TEST(ActionTable, RefusesWhatIsNoTableOfNumbers) {
  ScratchFolder folder;
  const auto refused = [&](const std::string& text) {
    write_text_file(folder / "a.actions.csv", text);
    return message_of<ConfigError>([&] { ActionTable::read(folder / "a.actions.csv"); });
  };
  EXPECT_CONTAINS(refused(""), "no rows");
  EXPECT_CONTAINS(refused("x,y\n"), "no rows");
  EXPECT_CONTAINS(refused("1,2\n3\n"), "line 2: 1 columns");
  EXPECT_CONTAINS(refused("1\n\n2\n"), "line 2: expected a number");
  EXPECT_CONTAINS(refused("1\nnan\n"), "line 2: expected a number, got \"nan\"");
  EXPECT_CONTAINS(refused("1\n2x\n"), "\"2x\"");
  write_text_file(folder / "a.actions.csv", "dx,dy\n1,2\n3,4");
  EXPECT_EQ(ActionTable::read(folder / "a.actions.csv").values, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(action_csv_of("a/b.c.mp4"), "a/b.c.actions.csv");
}

}  // namespace
}  // namespace vitrine
