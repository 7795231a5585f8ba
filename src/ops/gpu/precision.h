// How exact and how repeatable the GPU's matrix products and attention are, for the whole process.
#pragma once

namespace vitrine::gpu {

// f32 products on tensor cores with 10 bits of mantissa. Off at first.
void set_tf32(bool on);
bool tf32();

// Attention through cuDNN gives the same bits every time, at the cost of a slower backward. Off at
// first; every other operation is repeatable always.
void set_deterministic(bool on);
bool deterministic();

}  // namespace vitrine::gpu
