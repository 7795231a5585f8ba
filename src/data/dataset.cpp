// Datasets over frame caches and token shards.
#include "data/dataset.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace vitrine {
namespace {

// k / 255 rounded once, so that a frame read is the same float on every path.
const std::array<float, 256> kUnit = [] {
  std::array<float, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 255.0f;
  return table;
}();

Shape with_first(int64_t first, const Shape& rest) {
  std::vector<int64_t> dims = rest.dims();
  dims.insert(dims.begin(), first);
  return Shape(dims);
}

}  // namespace

ClipDataset::ClipDataset(std::shared_ptr<const FrameCache> cache,
                         int64_t length,
                         int64_t stride,
                         bool with_state)
    : cache_(std::move(cache)), clips_(*cache_, length, stride), with_state_(with_state) {
  fields_.push_back({"frames", Shape{length, cache_->height(), cache_->width(), 3}, DType::kF32});
  if (cache_->meta().action_kind == FrameActions::kDiscrete) {
    fields_.push_back({"actions", Shape{length}, DType::kI32});
  } else {
    fields_.push_back({"actions", Shape{length, cache_->meta().action_count}, DType::kF32});
  }
  if (!with_state) return;
  if (!cache_->has_state()) {
    throw ConfigError(cache_->dir() + ": a state was asked for, but the cache holds no state.npy");
  }
  fields_.push_back({"state", with_first(length, cache_->state_row()), DType::kF32});
}

void ClipDataset::fill(int64_t index, uint64_t, std::span<const TensorView> views) const {
  VITRINE_ASSERT(views.size() == fields_.size());
  const int64_t first = clips_.first_frame(index), length = clips_.length();
  // The frames of a clip lie together, so each field is one run of memory.
  const uint8_t* const pixels = cache_->frame(first);
  std::transform(
      pixels, pixels + length * cache_->frame_bytes(), views[0].as<float>(), [](uint8_t value) {
        return kUnit[value];
      });
  if (cache_->meta().action_kind == FrameActions::kDiscrete) {
    std::copy_n(cache_->discrete_action(first), length, views[1].as<int32_t>());
  } else {
    std::copy_n(cache_->continuous_action(first),
                length * cache_->meta().action_count,
                views[1].as<float>());
  }
  if (with_state_) std::copy_n(cache_->state(first), views[2].elements(), views[2].as<float>());
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenShards> shards,
                           int64_t length,
                           int64_t vocabulary)
    : windows_(std::move(shards), length, vocabulary),
      fields_{{"tokens", Shape{length}, DType::kI32}, {"targets", Shape{length}, DType::kI32}} {}

void TokenDataset::fill(int64_t index, uint64_t, std::span<const TensorView> views) const {
  VITRINE_ASSERT(views.size() == 2);
  windows_.read(index, views[0].as<int32_t>(), views[1].as<int32_t>());
}

}  // namespace vitrine
