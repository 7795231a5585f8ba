// Video import: files in, one frame cache out.
#include "data/video.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "data/action_csv.h"
#include "data/frame_cache.h"

namespace vitrine {
namespace fs = std::filesystem;
namespace {

bool has_video_extension(const fs::path& path) {
  static constexpr std::array kExtensions = {".mp4",
                                             ".m4v",
                                             ".mov",
                                             ".avi",
                                             ".webm",
                                             ".mkv",
                                             ".ogv",
                                             ".ogg",
                                             ".mpg",
                                             ".mpeg",
                                             ".ts",
                                             ".flv",
                                             ".wmv",
                                             ".3gp"};
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

std::vector<std::string> files_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    if (!fs::is_directory(input)) {
      files.push_back(input);  // whatever its name; the decoder tells what it is
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(input)) {
      if (entry.is_regular_file() && has_video_extension(entry.path())) {
        found.push_back(entry.path().string());
      }
    }
    if (found.empty()) {
      throw ConfigError(input +
                        ": the folder holds no video file (.mp4, .avi, .webm, .mkv, .ogv ...)");
    }
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  if (files.empty()) throw ConfigError("no video file was given");
  return files;
}

// The action table of each file; empty when no file has one.
std::vector<ActionTable> actions_of(const std::vector<std::string>& files) {
  std::vector<ActionTable> tables;
  std::string without;
  for (const std::string& file : files) {
    const std::string csv = action_csv_of(file);
    if (!fs::exists(csv)) {
      without = file;
      continue;
    }
    tables.push_back(ActionTable::read(csv));
    const ActionTable& first = tables.front();
    const ActionTable& last = tables.back();
    if (last.columns != first.columns) {
      throw ConfigError(csv + ": " + std::to_string(last.columns) +
                        " columns, the files before have " + std::to_string(first.columns));
    }
  }
  if (!tables.empty() && !without.empty()) {
    throw ConfigError(without + " has no " + action_csv_of(without) +
                      ", but other files have actions; give all files actions or none");
  }
  return tables;
}

void check(const VideoOptions& o) {
  if (o.height < 1 || o.width < 1 || o.height > 16384 || o.width > 16384) {
    throw ConfigError(format("video: frames of %lldx%lld; expected 1 to 16384 each way",
                             static_cast<long long>(o.height),
                             static_cast<long long>(o.width)));
  }
  if (o.frame_stride < 1 || !(o.target_fps >= 0) || !std::isfinite(o.target_fps)) {
    throw ConfigError(
        "video: expected a frame stride of at least 1 and a target rate of at least 0");
  }
  if (o.frame_stride > 1 && o.target_fps > 0) {
    throw ConfigError("video: a frame stride and a target rate exclude each other; give one");
  }
}

// Which frames are kept: every n-th, or the first at or after each tick of the target rate.
class Picker {
 public:
  Picker(const VideoOptions& options, double fps) : options_(options) {
    // A frame may be shown a little before its tick because containers round their times.
    early_ = fps > 0 ? 0.25 / fps : 0;
  }
  bool keeps(int64_t frame, double time) {
    if (options_.target_fps <= 0) return frame % options_.frame_stride == 0;
    if (time + early_ < static_cast<double>(tick_) / options_.target_fps) return false;
    tick_ = 1 + static_cast<int64_t>(std::floor((time + early_) * options_.target_fps));
    return true;
  }

 private:
  const VideoOptions& options_;
  double early_ = 0;
  int64_t tick_ = 0;
};

class Importer {
 public:
  Importer(const VideoOptions& options,
           std::vector<std::string> files,
           std::vector<ActionTable> tables)
      : options_(options),
        files_(std::move(files)),
        tables_(std::move(tables)),
        discrete_(std::all_of(
            tables_.begin(),
            tables_.end(),
            [](const ActionTable& table) { return table.kind == FrameActions::kDiscrete; })),
        writer_(options.output, meta(), options.height, options.width, {}, options.overwrite) {}

  VideoSummary run() {
    const int64_t begin = now_ns();
    for (size_t i = 0; i < files_.size(); ++i) {
      summary_.files.push_back(import_file(files_[i], tables_.empty() ? nullptr : &tables_[i]));
    }
    finish_meta();
    writer_.finish();
    summary_.frames = writer_.frames();
    summary_.episodes = episode_;
    summary_.bytes = summary_.frames * options_.height * options_.width * 3;
    summary_.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    return summary_;
  }

 private:
  FrameCacheMeta meta() const;
  VideoFileSummary import_file(const std::string& path, const ActionTable* actions);
  void append(const uint8_t* frame, const ActionTable* actions, int64_t row, bool new_episode);
  void finish_meta();

  const VideoOptions& options_;
  std::vector<std::string> files_;
  std::vector<ActionTable> tables_;
  bool discrete_;
  FrameCacheWriter writer_;
  VideoSummary summary_;
  int32_t episode_ = 0;  // episodes begun so far
};

FrameCacheMeta Importer::meta() const {
  FrameCacheMeta meta;
  meta.licence = options_.licence;
  meta.source = options_.source;
  if (meta.source.empty()) {
    std::vector<std::string> names;
    for (const std::string& file : files_) names.push_back(fs::path(file).filename().string());
    meta.source = join(names, ", ");
  }
  if (tables_.empty()) return meta;
  if (discrete_) {
    for (const ActionTable& table : tables_) {
      const double most = *std::max_element(table.values.begin(), table.values.end());
      meta.action_count = std::max(meta.action_count, static_cast<int64_t>(most) + 1);
    }
  } else {
    meta.action_kind = FrameActions::kContinuous;
    meta.action_count = tables_.front().columns;
  }
  return meta;
}

void Importer::append(const uint8_t* frame,
                      const ActionTable* actions,
                      int64_t row,
                      bool new_episode) {
  if (new_episode) ++episode_;
  std::vector<float> continuous;
  int32_t discrete = 0;
  if (actions != nullptr && row < actions->rows) {
    const double* const values = actions->values.data() + row * actions->columns;
    discrete = discrete_ ? static_cast<int32_t>(values[0]) : 0;
    for (int64_t i = 0; i < actions->columns; ++i) {
      continuous.push_back(static_cast<float>(values[i]));
    }
  } else if (actions != nullptr) {
    continuous.resize(static_cast<size_t>(actions->columns));  // refused at the end of the file
  }
  const void* const action =
      discrete_ ? static_cast<const void*>(&discrete) : static_cast<const void*>(continuous.data());
  writer_.append(episode_ - 1, 1, frame, action, nullptr);
}

VideoFileSummary Importer::import_file(const std::string& path, const ActionTable* actions) {
  VideoDecoder decoder(path, options_.height, options_.width, options_.fit);
  const double fps = decoder.fps();
  if (options_.target_fps > fps * 1.001) {
    throw ConfigError(path +
                      format(": %g frames a second, fewer than the target rate of %g; frames "
                             "are never invented, ask for less",
                             fps,
                             options_.target_fps));
  }
  VideoFileSummary file{path, decoder.codec(), 0, 0, 0, 0, false};
  file.fps = options_.target_fps > 0 ? options_.target_fps
                                     : fps / static_cast<double>(options_.frame_stride);
  const int32_t episodes_before = episode_;
  Picker picker(options_, fps);
  std::vector<uint8_t> frame(static_cast<size_t>(options_.height * options_.width * 3));
  bool new_episode = true;
  for (int64_t number = 0; decoder.advance(); ++number) {
    new_episode = new_episode || decoder.after_gap();
    if (!picker.keeps(number, decoder.time())) continue;
    decoder.read(frame.data());
    append(frame.data(), actions, number, new_episode);
    new_episode = false;
    ++file.frames;
  }
  file.episodes = episode_ - episodes_before;
  file.decode_errors = decoder.decode_errors();
  const std::string cut_off = decoder.cut_off();
  file.truncated = !cut_off.empty();
  summary_.decode_errors += file.decode_errors;

  if (file.truncated && !options_.allow_truncated) {
    throw IoError(path + ": the file was cut off: " + cut_off +
                  "; copy it again, or allow truncated files");
  }
  if (file.frames < 2) {
    throw IoError(path + ": only " + std::to_string(file.frames) + " frame(s) could be taken (" +
                  std::to_string(file.decode_errors) + " decode errors); a clip needs two or more");
  }
  if (actions != nullptr && file.decode_errors > 0) {
    throw ConfigError(path + ": " + std::to_string(file.decode_errors) +
                      " decode errors, so its frames can't be matched with the rows of " +
                      action_csv_of(path));
  }
  if (actions != nullptr && actions->rows != decoder.decoded()) {
    throw ConfigError(action_csv_of(path) + ": " + std::to_string(actions->rows) + " rows, but " +
                      path + " has " + std::to_string(decoder.decoded()) +
                      " frames; give one row for each frame");
  }
  return file;
}

void Importer::finish_meta() {
  static constexpr const char* kFits[] = {"crop", "letterbox", "stretch"};
  Json settings;
  settings["fit"] = kFits[static_cast<size_t>(options_.fit)];
  settings["frame_stride"] = options_.frame_stride;
  settings["target_fps"] = options_.target_fps;
  double fps = summary_.files.front().fps;
  for (const VideoFileSummary& file : summary_.files) {
    if (std::fabs(file.fps - fps) > 1e-3 * fps) fps = 0;
    settings["files"].push_back({{"name", fs::path(file.path).filename().string()},
                                 {"codec", file.codec},
                                 {"fps", file.fps},
                                 {"frames", file.frames},
                                 {"episodes", file.episodes},
                                 {"decode_errors", file.decode_errors},
                                 {"truncated", file.truncated}});
  }
  writer_.meta().fps = fps;
  writer_.meta().generator = settings.dump();
}

}  // namespace

VideoSummary import_video(const VideoOptions& options) {
  check(options);
  std::vector<std::string> files = files_of(options.inputs);
  std::vector<ActionTable> tables = actions_of(files);
  return Importer(options, std::move(files), std::move(tables)).run();
}

}  // namespace vitrine
