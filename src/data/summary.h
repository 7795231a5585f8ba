// What making a frame cache did, for the command line to say.
#pragma once

#include <cstdint>

namespace vitrine {

struct DataSummary {
  int64_t frames = 0, episodes = 0;
  int64_t bytes = 0;  // of the frames
  double seconds = 0;
};

}  // namespace vitrine
