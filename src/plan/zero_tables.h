// Arithmetic of the ZeRO papers, for checks of the planner and for explanations.
#pragma once

#include <cstdint>

namespace vitrine {

// ZeRO (arXiv 1910.02054), figure 1 and table 1: bytes of model states a rank under mixed-precision
// Adam (2 weights, 2 gradients, 12 optimizer), `stage` 0 to 3 over `ranks` data ranks. Throws
// ConfigError for other stages.
double zero_state_bytes(double parameters, int64_t ranks, int stage);
// Section 9's table 2: the most parameters whose states fit in `bytes` a rank.
double zero_most_parameters(double bytes, int64_t ranks, int stage);

// ZeRO-Infinity (arXiv 2104.07857), section 3 and figure 2a: a model of `layers` layers of width
// `hidden` with `heads` heads.
struct InfinityShape {
  double layers = 0, hidden = 0, heads = 0;
  double parameters() const;       // 12 layers hidden²
  double state_bytes() const;      // of the model: 20 a parameter
  double working_weights() const;  // bytes of the largest operator: weights and gradients
  // Bytes for `batch` samples a rank of `sequence` tokens, a checkpoint every `interval` layers.
  double activations(double batch, double sequence) const;  // of all layers, kept
  double checkpoints(double batch, double sequence, double interval) const;
  double working_activations(double batch, double sequence, double interval) const;
};

// Share of the peak that is reached when `operations` FLOPs go with each byte moved at
// `bytes_per_s` and nothing overlaps (section 4, equation 6).
double infinity_efficiency(double operations_per_byte, double bytes_per_s, double peak_flops);

}  // namespace vitrine
