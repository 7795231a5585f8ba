// Frame caches on disk: written whole or not at all, validated when opened.
#include "data/frame_cache.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/sha256.h"

namespace vitrine {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kFormatName = "vitrine frame cache";

const char* kind_name(FrameActions kind) {
  return kind == FrameActions::kDiscrete ? "discrete" : "continuous";
}

}  // namespace

FrameCacheWriter::FrameCacheWriter(const std::string& dir,
                                   FrameCacheMeta meta,
                                   int64_t height,
                                   int64_t width,
                                   std::optional<Shape> state_row,
                                   bool overwrite)
    : folder_(dir, overwrite), meta_(std::move(meta)) {
  if (height < 1 || width < 1) {
    throw ConfigError("frame size " + std::to_string(height) + "x" + std::to_string(width) +
                      ": expected at least 1x1");
  }
  frames_ = std::make_unique<NpyWriter>(path("frames.npy"), DType::kU8, Shape{height, width, 3});
  const bool discrete = meta_.action_kind == FrameActions::kDiscrete;
  actions_ = std::make_unique<NpyWriter>(path("actions.npy"),
                                         discrete ? DType::kI32 : DType::kF32,
                                         discrete ? Shape{} : Shape{meta_.action_count});
  episode_ = std::make_unique<NpyWriter>(path("episode.npy"), DType::kI32, Shape{});
  if (state_row) {
    state_ = std::make_unique<NpyWriter>(path("state.npy"), DType::kF32, *state_row);
  }
}

void FrameCacheWriter::append(int32_t episode,
                              int64_t count,
                              const uint8_t* frames,
                              const void* actions,
                              const float* state) {
  VITRINE_ASSERT((state != nullptr) == (state_ != nullptr));
  // Episodes come in rising order, so that each is one run of frames.
  VITRINE_ASSERT(episode >= last_episode_ && episode >= 0);
  episodes_ += episode != last_episode_ ? 1 : 0;
  last_episode_ = episode;
  frames_->append(frames, count);
  actions_->append(actions, count);
  const std::vector<int32_t> ids(static_cast<size_t>(count), episode);
  episode_->append(ids.data(), count);
  if (state_) state_->append(state, count);
}

void FrameCacheWriter::finish() {
  if (frames_->count() == 0) throw ConfigError(folder_.final_path() + ": no frames to write");
  Json meta;
  meta["format"] = kFormatName;
  meta["version"] = kFormatVersion;
  meta["frames"] = frames_->count();
  meta["episodes"] = episodes_;
  meta["fps"] = meta_.fps;
  meta["source"] = meta_.source;
  meta["licence"] = meta_.licence;
  meta["action_kind"] = kind_name(meta_.action_kind);
  meta["action_count"] = meta_.action_count;
  meta["generator"] = parse_json(meta_.generator, "generator settings");
  const auto finish_array = [&](NpyWriter* writer, const char* name) {
    if (writer == nullptr) return;
    writer->finish();
    meta["sha256"][name] = sha256_of_file(path(name));
  };
  finish_array(frames_.get(), "frames.npy");
  finish_array(actions_.get(), "actions.npy");
  finish_array(episode_.get(), "episode.npy");
  finish_array(state_.get(), "state.npy");
  write_text_file(path("meta.json"), meta.dump(2) + "\n");
  folder_.finish();
}

FrameCache FrameCache::open(const std::string& dir) {
  FrameCache cache;
  cache.dir_ = dir;
  if (!fs::is_directory(dir)) throw IoError(dir + ": expected a frame-cache folder; none is there");
  const std::string meta_path = dir + "/meta.json";
  if (!fs::exists(meta_path)) {
    throw IoError(dir +
                  ": not a frame cache (it holds no meta.json); see docs/formats/frame_cache.md");
  }
  const Json json = read_json_file(meta_path);
  JsonReader meta(json, "");
  FrameCacheMeta& m = cache.meta_;
  int64_t frames = 0, episodes = 0;
  try {
    const std::string name = meta.text("format", "");
    const int64_t version = meta.integer("version", 0);
    if (name != kFormatName || version != kFormatVersion) {
      throw ConfigError("format \"" + name + "\" version " + std::to_string(version) +
                        ", expected \"" + kFormatName + "\" version 1");
    }
    frames = meta.integer("frames", 0, 1, INT64_MAX);
    episodes = meta.integer("episodes", 0, 1, INT64_MAX);
    m.fps = meta.number("fps", 0);
    m.source = meta.text("source", "");
    m.licence = meta.text("licence", "");
    const std::string kind = meta.choice("action_kind", "", {"discrete", "continuous"});
    m.action_kind = kind == "discrete" ? FrameActions::kDiscrete : FrameActions::kContinuous;
    m.action_count = meta.integer("action_count", 0, 1, INT32_MAX);
    m.generator = meta.raw("generator").is_null() ? "{}" : meta.raw("generator").dump();
    JsonReader sha(meta.raw("sha256"), "sha256");
    for (const char* file : {"frames.npy", "actions.npy", "episode.npy", "state.npy"}) {
      const std::string digest = sha.text(file, "");
      if (!digest.empty()) cache.digests_.emplace_back(file, digest);
    }
    sha.finish();
    meta.finish();
  } catch (const ConfigError& error) {
    throw ConfigError(meta_path + ": " + error.what());
  }

  cache.frames_ = NpyArray(dir + "/frames.npy");
  cache.actions_ = NpyArray(dir + "/actions.npy");
  cache.episode_ = NpyArray(dir + "/episode.npy");
  if (fs::exists(dir + "/state.npy")) cache.state_ = NpyArray(dir + "/state.npy");

  const bool discrete = m.action_kind == FrameActions::kDiscrete;
  const auto require = [](const NpyArray& array, const Shape& shape, DType dtype) {
    if (array.shape() == shape && array.dtype() == dtype) return;
    throw ConfigError(array.path() + ": expected " + dtype_name(dtype) + " " + shape.str() +
                      " by meta.json, got " + dtype_name(array.dtype()) + " " +
                      array.shape().str());
  };
  const int image_rank = cache.frames_.shape().rank();
  const int64_t height = image_rank == 4 ? cache.frames_.shape()[1] : 0;
  const int64_t width = image_rank == 4 ? cache.frames_.shape()[2] : 0;
  require(cache.frames_, Shape{frames, height, width, 3}, DType::kU8);
  if (height < 1 || width < 1) {
    throw ConfigError(cache.frames_.path() + ": frames of " + cache.frames_.shape().str() +
                      " have no pixels");
  }
  require(cache.actions_,
          discrete ? Shape{frames} : Shape{frames, m.action_count},
          discrete ? DType::kI32 : DType::kF32);
  require(cache.episode_, Shape{frames}, DType::kI32);
  if (cache.state_ && (cache.state_->rows() != frames || cache.state_->dtype() != DType::kF32)) {
    throw ConfigError(cache.state_->path() + ": expected f32 [" + std::to_string(frames) +
                      ", ...], got " + dtype_name(cache.state_->dtype()) + " " +
                      cache.state_->shape().str());
  }

  if (discrete) {
    for (int64_t i = 0; i < frames; ++i) {
      const int32_t action = *cache.discrete_action(i);
      if (action >= 0 && action < m.action_count) continue;
      throw ConfigError(cache.actions_.path() + ": action " + std::to_string(action) +
                        " at frame " + std::to_string(i) + ", expected 0 to " +
                        std::to_string(m.action_count - 1));
    }
  }
  std::set<int32_t> seen;
  for (int64_t i = 0; i < frames; ++i) {
    const int32_t id = *cache.episode_.row<int32_t>(i);
    if (cache.episodes_.empty() || cache.episodes_.back().id != id) {
      if (!seen.insert(id).second) {
        throw ConfigError(cache.episode_.path() + ": episode " + std::to_string(id) +
                          " begins again at frame " + std::to_string(i) +
                          "; the frames of an episode must lie together");
      }
      cache.episodes_.push_back({id, i, i});
    }
    cache.episodes_.back().end = i + 1;
  }
  if (static_cast<int64_t>(cache.episodes_.size()) != episodes) {
    throw ConfigError(meta_path + " says " + std::to_string(episodes) +
                      " episodes, episode.npy has " + std::to_string(cache.episodes_.size()));
  }
  return cache;
}

void FrameCache::verify() const {
  std::vector<std::string> files = {"frames.npy", "actions.npy", "episode.npy"};
  if (state_) files.emplace_back("state.npy");
  for (const std::string& file : files) {
    const auto it = std::find_if(
        digests_.begin(), digests_.end(), [&](const auto& entry) { return entry.first == file; });
    if (it == digests_.end()) throw IoError(dir_ + "/meta.json holds no sha256 of " + file);
    const std::string found = sha256_of_file(dir_ + "/" + file);
    if (found != it->second) {
      throw IoError(dir_ + "/" + file + ": SHA-256 is " + found + ", meta.json says " + it->second +
                    "; the file was changed or damaged");
    }
  }
}

Shape FrameCache::state_row() const {
  const std::vector<int64_t> dims = state_->shape().dims();
  return Shape(std::vector<int64_t>(dims.begin() + 1, dims.end()));
}

ClipIndex::ClipIndex(const FrameCache& cache, int64_t length, int64_t stride)
    : length_(length), stride_(stride), first_clip_{0} {
  if (length < 1 || stride < 1) {
    throw ConfigError("clips of " + std::to_string(length) + " frames every " +
                      std::to_string(stride) + ": expected at least 1 and 1");
  }
  int64_t longest = 0;
  for (const Episode& episode : cache.episodes()) {
    const int64_t frames = episode.frames();
    const int64_t clips = frames < length ? 0 : (frames - length) / stride + 1;
    longest = std::max(longest, frames);
    first_frame_.push_back(episode.begin);
    first_clip_.push_back(first_clip_.back() + clips);
  }
  if (size() == 0) {
    throw ConfigError(cache.dir() + ": no episode holds a clip of " + std::to_string(length) +
                      " frames (the longest has " + std::to_string(longest) +
                      "); ask for shorter clips");
  }
}

int64_t ClipIndex::first_frame(int64_t i) const {
  VITRINE_ASSERT(i >= 0 && i < size());
  const auto after = std::upper_bound(first_clip_.begin(), first_clip_.end(), i);
  const auto episode = static_cast<size_t>(after - first_clip_.begin()) - 1;
  return first_frame_[episode] + (i - first_clip_[episode]) * stride_;
}

}  // namespace vitrine
