// The cosines and sines of rotary positions in device memory.
#pragma once

#include <cstdint>

namespace vitrine::gpu {

// Angle p base^(-c / half) at [p * half + c], computed in double, for at least `length` positions;
// both arrays are 256-byte aligned.
struct RotaryTable {
  const float* cosine = nullptr;
  const float* sine = nullptr;
};

// Of the calling thread's device; kept until the process ends, so every layer of a model shares
// one. The first call for a base, half or longer length computes it and waits for its upload: not
// to be made while a graph is captured.
RotaryTable rotary_table(int64_t length, int64_t half, double base);

}  // namespace vitrine::gpu
