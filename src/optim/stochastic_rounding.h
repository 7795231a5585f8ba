// Stochastic rounding of fp32 to bf16: up with the probability of the part that is cut off, so that
// the mean of many roundings is the value. The same bits on the host and in kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/both.h"
#include "core/philox.h"

namespace vitrine {

// The bits that round one parameter's states in one update: a pure function of the parameter's key,
// the update's number, the array and the element's index in the parameter, so that neither ranks
// nor cuts show. Initial values draw from the same key at step 0, which no update has.
struct RoundingBits {
  static constexpr int64_t kBlock = 8;  // elements that share a block of Philox, eight numbers
  enum Array : uint32_t { kMaster, kExpAvg, kExpAvgSq };

  uint32_t key0 = 0, key1 = 0;
  uint32_t step = 0;

  // Words of the elements [8 * block, 8 * block + 8), for all arrays.
  VITRINE_BOTH void words(int64_t block, uint32_t (&out)[4]) const {
    out[0] = static_cast<uint32_t>(block);
    out[1] = static_cast<uint32_t>(static_cast<uint64_t>(block) >> 32);
    out[2] = step;
    out[3] = 0;
    philox_rounds(out, key0, key1);
  }
  // Which of the block's eight numbers of 16 bits rounds element `place` in `array`. The arrays of
  // one element take different ones, so they are rounded independently, and so are the elements of
  // one array. A number serves three neighbours in an array each, whose errors are so correlated by
  // pairs: the master of one and a moment of another.
  static VITRINE_BOTH int number(Array array, int place) { return place ^ static_cast<int>(array); }
};

// The 16 bits that round element `place` of a block in `array`.
VITRINE_BOTH uint32_t rounding_noise(const uint32_t (&words)[4],
                                     RoundingBits::Array array,
                                     int place) {
  const int number = RoundingBits::number(array, place);
  const uint32_t word = words[number / 2];
  return number % 2 == 0 ? word & 0xffffu : word >> 16;
}

// `noise` is uniform in [0, 2^16). The bits of a bf16; a NaN stays one.
VITRINE_BOTH uint16_t stochastic_bf16(float x, uint32_t noise) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return x == x ? static_cast<uint16_t>((bits + noise) >> 16) : uint16_t{0x7fff};
}

}  // namespace vitrine
