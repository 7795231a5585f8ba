// Philox 4x32-10 (Salmon et al., SC'11): random numbers as a pure function of a key and a counter.
// Results never depend on sharding, threads or order: key = what is drawn, counter = which element.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/both.h"

namespace vitrine {

VITRINE_BOTH uint64_t wide_product(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  uint64_t product;  // by name: the compiler makes a 64-bit product of it, and adds zeros to that
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return uint64_t{a} * b;
#endif
}

// The counter `c` becomes its random words.
VITRINE_BOTH void philox_rounds(uint32_t (&c)[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = wide_product(0xD2511F53u, c[0]), b = wide_product(0xCD9E8D57u, c[2]);
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c1 ^ key0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c3 ^ key1;
    c[3] = static_cast<uint32_t>(a);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

class Philox {
 public:
  // `seed` is the run's seed, `stream` says what is drawn (see stream_of), both free to choose.
  Philox(uint64_t seed, uint64_t stream) : key_{seed ^ (stream * 0x9e3779b97f4a7c15ull)} {}

  std::array<uint32_t, 4> block(uint64_t counter, uint64_t high = 0) const {
    uint32_t c[4] = {static_cast<uint32_t>(counter),
                     static_cast<uint32_t>(counter >> 32),
                     static_cast<uint32_t>(high),
                     static_cast<uint32_t>(high >> 32)};
    philox_rounds(c, static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
    return {c[0], c[1], c[2], c[3]};
  }
  uint64_t key() const { return key_; }

  uint64_t bits64(uint64_t counter) const {
    const auto r = block(counter);
    return (uint64_t{r[1]} << 32) | r[0];
  }
  // Uniform in [0, 1).
  double uniform(uint64_t counter) const {
    return static_cast<double>(bits64(counter) >> 11) * 0x1p-53;
  }
  // Uniform integer in [0, bound).
  uint64_t below(uint64_t bound, uint64_t counter) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(bits64(counter)) * bound) >> 64);
  }
  // Standard normal, by Box-Muller on one block.
  double normal(uint64_t counter) const {
    const auto r = block(counter);
    const double u = (static_cast<double>((uint64_t{r[1]} << 32 | r[0]) >> 11) + 1.0) * 0x1p-53;
    const double v = static_cast<double>((uint64_t{r[3]} << 32 | r[2]) >> 11) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
  }

 private:
  uint64_t key_;
};

// A stream number from a name (FNV-1a), e.g. a parameter's name.
constexpr uint64_t stream_of(std::string_view name) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

}  // namespace vitrine
