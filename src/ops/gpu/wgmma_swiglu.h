// Products of a gated feed-forward block with swiglu in their ends, for Hopper.
#pragma once

#include <cstdint>

namespace vitrine::gpu {

// bf16, row-major without padding; k is the width of the model, f the hidden features.
struct SwigluProduct {
  int64_t m = 0, k = 0, f = 0;
  const void* in = nullptr;      // [m, k]: x, or dy
  const void* weight = nullptr;  // w_gate_up [2f, k], or w_down [k, f]
  void* gate_up = nullptr;       // [m, 2f]
  void* out = nullptr;           // h [m, f], or d gate_up [m, 2f] (may be gate_up)
};

// Whether the two below can run it here: compute capability 9.0 and machine code for it, addresses
// of 16 bytes, k and f multiples of 8.
bool wgmma_swiglu_fits(const SwigluProduct& product);

// gate_up = x w_gate_upᵀ, h = silu(gate) up. The same bits as the product and swiglu one after the
// other, but for the order of a product's sums.
void wgmma_swiglu_forward(const SwigluProduct& product, int multiprocessors = 0);

// d gate_up of h = silu(gate) up with dh = dy w_down, rounded to bf16 in between.
void wgmma_swiglu_backward(const SwigluProduct& product, int multiprocessors = 0);

}  // namespace vitrine::gpu
