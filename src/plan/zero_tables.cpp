// Arithmetic of the ZeRO papers.
#include "plan/zero_tables.h"

#include <string>

#include "core/error.h"

namespace vitrine {
namespace {

// Bytes a parameter and rank.
double bytes_each(int64_t ranks, int stage) {
  if (ranks < 1) throw ConfigError("ZeRO: ranks are at least 1, got " + std::to_string(ranks));
  const auto n = static_cast<double>(ranks);
  switch (stage) {
    case 0:
      return 16;
    case 1:
      return 4 + 12 / n;
    case 2:
      return 2 + 14 / n;
    case 3:
      return 16 / n;
    default:
      throw ConfigError("ZeRO: the stage is 0, 1, 2 or 3, got " + std::to_string(stage));
  }
}

}  // namespace

double zero_state_bytes(double parameters, int64_t ranks, int stage) {
  return parameters * bytes_each(ranks, stage);
}

double zero_most_parameters(double bytes, int64_t ranks, int stage) {
  return bytes / bytes_each(ranks, stage);
}

double InfinityShape::parameters() const { return 12 * layers * hidden * hidden; }

double InfinityShape::state_bytes() const { return 20 * parameters(); }

// The MLP's first matrix, hidden x 4 hidden, in two bytes, and its gradient.
double InfinityShape::working_weights() const { return 16 * hidden * hidden; }

double InfinityShape::working_activations(double batch, double sequence, double interval) const {
  return batch * sequence * interval * (16 * hidden + 2 * heads * sequence);
}

double InfinityShape::activations(double batch, double sequence) const {
  return layers * working_activations(batch, sequence, 1);
}

double InfinityShape::checkpoints(double batch, double sequence, double interval) const {
  return 2 * batch * sequence * hidden * layers / interval;
}

double infinity_efficiency(double operations_per_byte, double bytes_per_s, double peak_flops) {
  const double reached = operations_per_byte * bytes_per_s;
  return reached / (reached + peak_flops);
}

}  // namespace vitrine
