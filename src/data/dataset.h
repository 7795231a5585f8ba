// What a training run reads: samples by number, each a few named tensors of fixed shape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"
#include "data/frame_cache.h"
#include "data/tokens.h"

namespace vitrine {

// One named tensor of a sample; a micro-batch holds it as [micro_batch, sample shape...].
struct FieldSpec {
  std::string name;
  Shape shape;  // of one sample
  DType dtype;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  virtual const std::vector<FieldSpec>& fields() const = 0;
  // Writes sample `index` into `views`, one for each of fields() in their order, each of the
  // sample's shape. A pure function of its arguments, called from several threads at once.
  // `epoch_seed` is the same for a whole epoch and serves random augmentation.
  virtual void fill(int64_t index,
                    uint64_t epoch_seed,
                    std::span<const TensorView> views) const = 0;
};

// Clips of a frame cache: frames f32 [length, H, W, 3] in [0, 1]; actions i32 [length] (discrete)
// or f32 [length, A] (continuous), where actions[t] drives frames[t] -> frames[t + 1]; state f32
// [length, state_row...] when asked for.
class ClipDataset : public Dataset {
 public:
  // Throws ConfigError when no clip fits, or a state is asked of a cache without one.
  ClipDataset(std::shared_ptr<const FrameCache> cache,
              int64_t length,
              int64_t stride = 1,
              bool with_state = false);

  int64_t size() const override { return clips_.size(); }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void fill(int64_t index, uint64_t epoch_seed, std::span<const TensorView> views) const override;
  const FrameCache& cache() const { return *cache_; }
  const ClipIndex& clips() const { return clips_; }

 private:
  std::shared_ptr<const FrameCache> cache_;
  ClipIndex clips_;
  bool with_state_;
  std::vector<FieldSpec> fields_;
};

// Windows of token shards: tokens i32 [length], targets i32 [length] (kIgnoredTarget = no loss
// there).
class TokenDataset : public Dataset {
 public:
  TokenDataset(std::shared_ptr<const TokenShards> shards, int64_t length, int64_t vocabulary);

  int64_t size() const override { return windows_.size(); }
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  void fill(int64_t index, uint64_t epoch_seed, std::span<const TensorView> views) const override;

 private:
  TokenWindows windows_;
  std::vector<FieldSpec> fields_;
};

}  // namespace vitrine
