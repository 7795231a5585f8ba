// The cosines and sines of rotary positions.
#pragma once

#include <cstdint>

namespace vitrine::fast {

// Angle p base^(-c / half) at [p * half + c], for at least `length` positions.
struct RotaryTable {
  const float* cosine;
  const float* sine;
};

// A thread keeps its last table: every layer of a model asks for the same one. Valid until the next
// call.
RotaryTable rotary_table(int64_t length, int64_t half, double base);

}  // namespace vitrine::fast
