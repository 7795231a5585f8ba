// Importing video files into a frame cache: decoded once, then read at the speed of memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/summary.h"
#include "data/video_decoder.h"

namespace vitrine {

struct VideoOptions {
  // Video files, or folders whose video files (by extension) are taken in order of name.
  std::vector<std::string> inputs;
  std::string output;  // frame-cache folder
  int64_t height = 96, width = 96;
  VideoFit fit = VideoFit::kCrop;
  int64_t frame_stride = 1;      // keep every n-th frame
  double target_fps = 0;         // or keep frames at this rate (0: not); not above the file's own
  bool allow_truncated = false;  // take what is left of files that were cut off
  std::string source, licence;   // for meta.json; source defaults to the files' names
  bool overwrite = false;
};

struct VideoFileSummary {
  std::string path, codec;
  double fps = 0;  // of the frames kept
  int64_t frames = 0, episodes = 0, decode_errors = 0;
  bool truncated = false;
};

struct VideoSummary : DataSummary {
  int64_t decode_errors = 0;
  std::vector<VideoFileSummary> files;
};

// A file is one episode; where a damaged packet lost frames, a new episode begins, so that no clip
// jumps over the gap. Actions come from NAME.actions.csv beside each NAME.EXT (one row for each
// frame of the file; a kept frame keeps its row), for all files or for none; without them there is
// the one action "none". meta.json counts the decode errors of each file.
//
// Throws IoError naming the file for missing, empty, foreign and cut-off files and for files that
// give fewer than two frames; ConfigError for options that can't be met, folders without video and
// actions that do not fit the frames.
VideoSummary import_video(const VideoOptions& options);

}  // namespace vitrine
