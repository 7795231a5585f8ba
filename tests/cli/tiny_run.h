// A run file whose step takes about a millisecond.
#pragma once

#include <string>

#include "core/json.h"

namespace vitrine {

inline Json tiny_run() {
  return {{"model",
           {{"family", "decoder"},
            {"vocab", 64},
            {"hidden", 16},
            {"layers", 2},
            {"heads", 2},
            {"max_positions", 16},
            {"sequence_length", 16},
            {"tied_embeddings", true}}},
          {"data", {{"kind", "random"}}},
          {"train", {{"steps", 3}, {"schedule", "constant"}}},
          {"train_batch_size", 4},
          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}}};
}

inline std::string write_run(const std::string& path, const Json& run) {
  write_text_file(path, run.dump(1));
  return path;
}

}  // namespace vitrine
