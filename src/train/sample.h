// Text from a trained decoder, token by token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "models/registry.h"
#include "run/engine.h"

namespace vitrine {

// A run folder's newest checkpoint on one rank, whatever number of ranks wrote it, at
// micro-batch 1.
struct TrainedRun {
  RunConfig config;
  std::string family;
  std::string model;            // the resolved section, as JSON text
  int64_t sequence_length = 0;  // decoder
  int64_t clip_frames = 0;      // world model
  std::unique_ptr<Engine> engine;
};
// A decoder's engine also gives "hidden", for TokenSampler. Throws IoError, ConfigError.
TrainedRun open_trained_run(const std::string& run_folder);

struct SampleOptions {
  double temperature = 1;  // 0 = always the likeliest token
  int64_t top_k = 0;       // only the likeliest k; 0 = all
  int64_t allowed = 0;     // only ids below this; 0 = the model's vocabulary
  uint64_t seed = 0;
};

// Draws one id from `logits`; `u` is uniform in [0, 1). Ids of equal logits count by their number.
int32_t draw_token(const std::vector<float>& logits, const SampleOptions& options, double u);

class TokenSampler {
 public:
  // `engine` is a decoder's with the result "hidden" and micro-batch 1, on one rank.
  explicit TokenSampler(Engine& engine);

  int64_t context() const { return length_; }
  int64_t vocabulary() const { return vocabulary_; }
  // Logits [vocabulary] of what follows `tokens` (the last context() of them count). Throws
  // ConfigError when there are none, or an id is outside the vocabulary.
  std::vector<float> logits(const std::vector<int32_t>& tokens);
  // `count` ids after `prompt`; ends early, without it, at `stop` (-1 = never). The random numbers
  // are a function of (seed, position): the same seed gives the same text.
  std::vector<int32_t> sample(std::vector<int32_t> prompt,
                              int64_t count,
                              int32_t stop,
                              const SampleOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

 private:
  Engine& engine_;
  TensorView weight_;  // [vocabulary, hidden]
  int64_t length_ = 0, vocabulary_ = 0, hidden_ = 0;
};

// Whether the run's ids are bytes (and kEndOfText): by its token shards, else by the vocabulary's
// size.
bool is_byte_level(const RunConfig& config, int64_t vocabulary);

}  // namespace vitrine
