// Peaks come from machines/accelerators.h.
#include "report/roofline.h"

#include <algorithm>

#include "machines/accelerators.h"

namespace vitrine {

namespace {

// Cards without bf16 are held to fp16.
double peak_of(const Accelerator& card) {
  return card.bf16_flops_per_s > 0 ? card.bf16_flops_per_s : card.fp16_flops_per_s;
}

}  // namespace

std::optional<Utilisation> utilisation(const RankFacts& rank) {
  const Accelerator* card = find_accelerator(rank.device);
  if (card == nullptr || peak_of(*card) <= 0 || rank.flops <= 0 || rank.total.span_ns <= 0 ||
      rank.flops_covered < 0.5) {
    return std::nullopt;
  }
  Utilisation out;
  out.flops_per_s = rank.flops / (static_cast<double>(rank.total.span_ns) * 1e-9);
  out.peak_flops_per_s = peak_of(*card);
  out.covered = rank.flops_covered;
  out.peak = std::string("dense ") + (card->bf16_flops_per_s > 0 ? "bf16" : "fp16") + " peak of " +
             card->name;
  return out;
}

std::optional<Roofline> roofline(const OperatorRow& row, const std::string& device) {
  const Accelerator* card = find_accelerator(device);
  if (card == nullptr || peak_of(*card) <= 0 || card->memory_bytes_per_s <= 0 || row.flops <= 0 ||
      row.bytes <= 0 || row.device_ns <= 0) {
    return std::nullopt;
  }
  const double compute = row.flops / peak_of(*card), memory = row.bytes / card->memory_bytes_per_s;
  return Roofline{compute >= memory,
                  std::max(compute, memory) / (static_cast<double>(row.device_ns) * 1e-9)};
}

}  // namespace vitrine
