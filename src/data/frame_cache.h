// A frame cache: a folder of frames, actions and episodes that training maps into memory.
// The exact layout is in docs/formats/frame_cache.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/folder_writer.h"
#include "data/npy.h"

namespace vitrine {

enum class FrameActions { kDiscrete, kContinuous };

// What meta.json says beyond shapes and digests.
struct FrameCacheMeta {
  double fps = 0;  // 0 = unknown, or not the same in all sources
  std::string source, licence;
  FrameActions action_kind = FrameActions::kDiscrete;
  // Discrete: number of different actions. Continuous: values a frame.
  int64_t action_count = 1;
  // Settings of what made the frames, as JSON text of one object ("{}" when there are none).
  std::string generator = "{}";
};

// Frames [begin, end) of one episode.
struct Episode {
  int32_t id = 0;
  int64_t begin = 0, end = 0;
  int64_t frames() const { return end - begin; }
};

// Writes a cache into a temporary folder beside `dir`, renamed by finish(); destroyed before that,
// it leaves nothing. An existing `dir` is an error unless `overwrite`, and then it is replaced
// whole.
class FrameCacheWriter {
 public:
  // `state_row`: shape of one frame's state, when there is one.
  FrameCacheWriter(const std::string& dir,
                   FrameCacheMeta meta,
                   int64_t height,
                   int64_t width,
                   std::optional<Shape> state_row = {},
                   bool overwrite = false);

  // `count` frames of one episode: frames u8 [count, H, W, 3]; actions i32 [count] or f32 [count,
  // A]; state f32 [count, state_row...] or null when the cache has none.
  void append(int32_t episode,
              int64_t count,
              const uint8_t* frames,
              const void* actions,
              const float* state);
  // Writes meta.json with the digests. `meta` may be adjusted until then.
  void finish();

  FrameCacheMeta& meta() { return meta_; }
  int64_t frames() const { return frames_->count(); }

 private:
  std::string path(const char* name) const { return folder_.path() + "/" + name; }
  FolderWriter folder_;  // outlives the arrays in it
  FrameCacheMeta meta_;
  std::unique_ptr<NpyWriter> frames_, actions_, episode_, state_;
  int64_t episodes_ = 0;
  int32_t last_episode_ = -1;
};

// A cache opened for reading. Action t drives frame t -> t + 1; the action of an episode's last
// frame leads nowhere.
class FrameCache {
 public:
  // Throws IoError for missing, truncated or foreign files and ConfigError for contents that do not
  // fit together: array lengths, an episode in two places, an action outside [0, action_count).
  static FrameCache open(const std::string& dir);
  // Compares the SHA-256 of each array with meta.json. Throws IoError naming the first that
  // differs.
  void verify() const;

  int64_t frames() const { return frames_.rows(); }
  int64_t height() const { return frames_.shape()[1]; }
  int64_t width() const { return frames_.shape()[2]; }
  int64_t frame_bytes() const { return frames_.row_elements(); }
  bool has_state() const { return state_.has_value(); }
  // Shape of one frame's state; only when has_state().
  Shape state_row() const;
  const FrameCacheMeta& meta() const { return meta_; }
  const std::vector<Episode>& episodes() const { return episodes_; }
  const std::string& dir() const { return dir_; }

  const uint8_t* frame(int64_t i) const { return frames_.row<uint8_t>(i); }  // [H, W, 3]
  const int32_t* discrete_action(int64_t i) const { return actions_.row<int32_t>(i); }
  const float* continuous_action(int64_t i) const { return actions_.row<float>(i); }
  const float* state(int64_t i) const { return state_->row<float>(i); }

 private:
  std::string dir_;
  FrameCacheMeta meta_;
  NpyArray frames_, actions_, episode_;
  std::optional<NpyArray> state_;
  std::vector<Episode> episodes_;
  std::vector<std::pair<std::string, std::string>> digests_;  // (file name, SHA-256)
};

// All windows of `length` frames that begin at every `stride`-th frame of an episode and stay in
// it.
class ClipIndex {
 public:
  // Throws ConfigError when no episode is long enough.
  ClipIndex(const FrameCache& cache, int64_t length, int64_t stride);

  int64_t size() const { return first_clip_.back(); }
  int64_t length() const { return length_; }
  // First frame of clip `i` in [0, size()).
  int64_t first_frame(int64_t i) const;

 private:
  int64_t length_, stride_;
  std::vector<int64_t> first_clip_;   // [episodes + 1], clips before each episode
  std::vector<int64_t> first_frame_;  // [episodes]
};

}  // namespace vitrine
