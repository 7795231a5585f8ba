// The order of samples: a pure function of (seed, epoch, global sample index), with nothing stored.
#pragma once

#include <bit>
#include <cstdint>

#include "core/error.h"
#include "core/philox.h"

namespace vitrine {

// A pseudo-random permutation of [0, size): a Feistel network over the smallest power of two that
// holds `size`, walked along its cycle until it lands inside (Black and Rogaway, CT-RSA 2002).
class Permutation {
 public:
  Permutation(int64_t size, uint64_t seed, uint64_t epoch)
      : size_(static_cast<uint64_t>(size)),
        epoch_(epoch),
        philox_(seed, stream_of("sample order")),
        bits_(static_cast<unsigned>(std::bit_width(size_ - 1))) {
    VITRINE_ASSERT(size >= 1);
  }

  int64_t operator()(int64_t index) const {
    VITRINE_ASSERT(index >= 0 && static_cast<uint64_t>(index) < size_);
    if (bits_ < 2) return size_ == 2 ? index ^ static_cast<int64_t>(flip()) : index;
    auto value = static_cast<uint64_t>(index);
    do {
      value = network(value);
    } while (value >= size_);
    return static_cast<int64_t>(value);
  }

 private:
  static constexpr unsigned kRounds =
      8;  // even, so that halves of unlike widths end where they began

  static uint64_t low_bits(uint64_t value, unsigned bits) {
    return value & ((uint64_t{1} << bits) - 1);
  }

  uint64_t flip() const { return philox_.block(0, epoch_ << 8)[0] & 1; }

  uint64_t network(uint64_t value) const {
    unsigned left_bits = bits_ / 2, right_bits = bits_ - left_bits;
    uint64_t left = value >> right_bits, right = low_bits(value, right_bits);
    for (unsigned round = 0; round < kRounds; ++round) {
      const auto random = philox_.block(right, epoch_ << 8 | round);
      const uint64_t mixed = left ^ (uint64_t{random[1]} << 32 | random[0]);
      left = right;
      right = low_bits(mixed, left_bits);
      std::swap(left_bits, right_bits);
    }
    return left << right_bits | right;
  }

  uint64_t size_, epoch_;
  Philox philox_;
  unsigned bits_;
};

// Where sample `global_index` of a run (counted over all steps and ranks) lies: epochs follow each
// other without a gap, so a batch may end one epoch and begin the next, and none is cut short.
struct SamplePlace {
  int64_t epoch;
  int64_t sample;  // index into the dataset
};
inline SamplePlace sample_place(int64_t dataset_size, uint64_t seed, int64_t global_index) {
  const int64_t epoch = global_index / dataset_size;
  return {
      epoch,
      Permutation(dataset_size, seed, static_cast<uint64_t>(epoch))(global_index % dataset_size)};
}

}  // namespace vitrine
