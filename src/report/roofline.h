// How much of a card's arithmetic and memory bandwidth was used, as far as shapes were recorded.
#pragma once

#include <optional>
#include <string>

#include "analysis/rank_facts.h"

namespace vitrine {

// Of a rank over its whole window. The traces' FLOP count what operators with recorded shapes do,
// recomputation included, so this is the utilisation of the hardware by them; it equals MFU where
// nothing is recomputed and all matrix products have shapes.
struct Utilisation {
  double flops_per_s = 0, peak_flops_per_s = 0;
  double covered = 0;  // share of the matrix products' device time whose FLOP are known
  std::string peak;    // "dense bf16 peak of NVIDIA H200"
  double share() const { return flops_per_s / peak_flops_per_s; }
};
// Nothing where the card or the shapes are not known, or fewer than half of the products have them.
std::optional<Utilisation> utilisation(const RankFacts& rank);

// An operator against the roofline of its card (bf16 peak, memory bandwidth): what bounds it, and
// the share of that bound that it reaches. Nothing where its FLOP, bytes, time or card are not
// known.
struct Roofline {
  bool compute_bound = false;
  double share = 0;
};
std::optional<Roofline> roofline(const OperatorRow& row, const std::string& device);

}  // namespace vitrine
