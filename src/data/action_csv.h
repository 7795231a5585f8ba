// Actions of a video from a CSV file beside it, one row a frame.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/frame_cache.h"

namespace vitrine {

// Rows of a CSV file of numbers, with or without one line of column names. One column of whole
// numbers from 0 up is discrete, anything else continuous.
struct ActionTable {
  FrameActions kind = FrameActions::kDiscrete;
  int64_t rows = 0, columns = 1;
  std::vector<double> values;  // [rows, columns]

  // Throws IoError when the file can't be read, ConfigError naming file and line for anything that
  // is no number or a row of another length.
  static ActionTable read(const std::string& path);
};

// "dir/clip.actions.csv" for "dir/clip.mp4".
std::string action_csv_of(const std::string& video);

}  // namespace vitrine
