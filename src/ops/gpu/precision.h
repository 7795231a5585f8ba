// How exact and how repeatable the GPU's matrix products and attention are, for the whole process.
#pragma once

namespace vitrine::gpu {

// f32 products on tensor cores with 10 bits of mantissa. Off at first.
void set_tf32(bool on);
bool tf32();

// The same bits every time and in every process: attention through cuDNN takes a slower backward,
// and products the library's first suggestion instead of what was fastest when measured. Off at
// first; set before the first operation. Everything else is repeatable always.
void set_deterministic(bool on);
bool deterministic();

}  // namespace vitrine::gpu
