// A sum of non-negative doubles in fixed point, so that the order of adding never shows.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/both.h"

namespace vitrine::gpu {

// 192 bits with weights 2^-120 .. 2^71: what a gradient's squares need. Parts of a term below
// 2^-120 are dropped (each term is cut the same way wherever it is added, so the sum stays
// independent of order); terms or sums of 2^72 and more, and what is not finite, set `overflow`.
// core/exact_sum.h has the range of double, at ten times the registers.
struct FixedSum {
  static constexpr int kLowest = -120;  // weight of bit 0 is 2^kLowest
  static constexpr int kPieces = 6;     // of 32 bits

  uint64_t word[3] = {0, 0, 0};
  bool overflow = false;

  VITRINE_BOTH void add(double term) {
    uint64_t bits;
    memcpy(&bits, &term, sizeof(bits));
    const int exponent = static_cast<int>(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
    if (exponent != 0) mantissa |= uint64_t{1} << 52;
    int shift = (exponent == 0 ? 1 : exponent) - 1075 - kLowest;
    // 2^72 has its lowest mantissa bit at 192 - 52.
    if (exponent == 0x7ff || shift >= 192 - 52) {
      overflow = true;
      return;
    }
    if (shift < 0) {
      mantissa = shift > -64 ? mantissa >> -shift : 0;
      shift = 0;
    }
    const int at = shift / 64, within = shift % 64;
    const uint64_t low = mantissa << within;
    const uint64_t high = within == 0 ? 0 : mantissa >> (64 - within);
    const uint64_t p0 = at == 0 ? low : 0;
    const uint64_t p1 = at == 0 ? high : at == 1 ? low : 0;
    const uint64_t p2 = at == 1 ? high : at == 2 ? low : 0;
    word[0] += p0;
    uint64_t carry = word[0] < p0;
    word[1] += carry;
    carry = word[1] < carry;
    word[1] += p1;
    carry += word[1] < p1;
    word[2] += carry;
    overflow = overflow || word[2] < carry;
    word[2] += p2;
    overflow = overflow || word[2] < p2;
  }
  // Piece i of 32 bits, lowest first.
  VITRINE_BOTH uint64_t piece(int i) const {
    return i % 2 == 0 ? word[i / 2] & 0xffffffffu : word[i / 2] >> 32;
  }
};

// Moves carries up, so that all pieces but the top one are below 2^32.
VITRINE_BOTH void carry_pieces(uint64_t* piece) {
  for (int i = 0; i + 1 < FixedSum::kPieces; ++i) {
    piece[i + 1] += piece[i] >> 32;
    piece[i] &= 0xffffffffu;
  }
}

// The sum rounded once; infinite from 2^72 on. Carries must have been moved.
VITRINE_BOTH double pieces_value(const uint64_t* piece) {
  int top = FixedSum::kPieces - 1;
  if (piece[top] >> 32 != 0) return HUGE_VAL;
  while (top >= 0 && piece[top] == 0) --top;
  if (top < 0) return 0;
  uint64_t head = piece[top] << 32 | (top >= 1 ? piece[top - 1] : 0);
  int zeros = 0;
  while ((head << zeros >> 63) == 0) ++zeros;  // below 32: piece[top] is not 0
  head <<= zeros;
  // The next piece fills up from below; whatever is left only says that there is more.
  uint64_t below = top >= 2 ? piece[top - 2] << zeros : 0;
  head |= below >> 32;
  bool more = (below & 0xffffffffu) != 0;
  for (int i = top - 3; i >= 0; --i) more = more || piece[i] != 0;
  if (more) head |= 1;
  return ldexp(static_cast<double>(head), 32 * (top - 1) + FixedSum::kLowest - zeros);
}

}  // namespace vitrine::gpu
