// Candidates by what they cost, each through the engine's own plan of memory.
#include "plan/what_fits.h"

#include <algorithm>

#include "core/format.h"
#include "plan/engine_plan.h"

namespace vitrine {
namespace {

int64_t peak(const RunConfig& config, int ranks) {
  const EnginePlan plan = plan_engine(config, ranks, nullptr);
  return plan.by_rank[static_cast<size_t>(plan.fullest_rank())].most_bytes;
}

// Divides the micro-batch, mostly by two, until it fits; the global batch stays. False when even
// one sample does not.
bool shrink(RunConfig& config, int ranks, int64_t capacity, int64_t& bytes) {
  Strategy& strategy = config.strategy;
  for (;;) {
    bytes = peak(config, ranks);
    if (bytes <= capacity) return true;
    if (strategy.micro_batch == 1) return false;
    int64_t divisor = 2;
    while (strategy.micro_batch % divisor != 0) ++divisor;
    strategy.micro_batch /= divisor;
    strategy.accumulation *= divisor;
  }
}

std::string change(const RunConfig& from, const RunConfig& to) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (to.strategy.micro_batch != from.strategy.micro_batch) {
    add(format("train_micro_batch_size_per_gpu %lld with gradient_accumulation_steps %lld",
               static_cast<long long>(to.strategy.micro_batch),
               static_cast<long long>(to.strategy.accumulation)));
  }
  if (to.strategy.recompute && !from.strategy.recompute) {
    add("activation_checkpointing (a third more arithmetic)");
  }
  if (to.strategy.shard.stage() != from.strategy.shard.stage()) {
    add("zero_optimization.stage " + std::to_string(to.strategy.shard.stage()));
  }
  return text;
}

}  // namespace

std::vector<Fitting> what_fits(const RunConfig& config,
                               int ranks,
                               int64_t capacity_bytes,
                               int64_t* asked) {
  if (asked) *asked = peak(config, ranks);
  std::vector<RunConfig> starts{config};
  if (!config.strategy.recompute) {
    starts.push_back(config);
    starts.back().strategy.recompute = true;
  }
  if (config.strategy.mesh.data > 1) {
    for (int stage = config.strategy.shard.stage() + 1; stage <= 3; ++stage) {
      starts.push_back(config);
      starts.back().strategy.shard = Sharding::stage(stage);
    }
    starts.push_back(starts.back());
    starts.back().strategy.shard = Sharding::stage(3);
    starts.back().strategy.recompute = true;
  }
  std::vector<Fitting> fits;
  for (RunConfig& candidate : starts) {
    Fitting fit;
    if (!shrink(candidate, ranks, capacity_bytes, fit.peak_bytes)) continue;
    fit.change = change(config, candidate);
    const bool known = std::any_of(
        fits.begin(), fits.end(), [&](const Fitting& f) { return f.change == fit.change; });
    if (!fit.change.empty() && !known) fits.push_back(fit);
  }
  return fits;
}

std::string what_fits_text(const RunConfig& config, int ranks, int64_t capacity_bytes) {
  int64_t asked = 0;
  const std::vector<Fitting> fits = what_fits(config, ranks, capacity_bytes, &asked);
  std::string text = "a step of this run holds " + format_bytes(static_cast<double>(asked)) +
                     " on its fullest rank, the device has " +
                     format_bytes(static_cast<double>(capacity_bytes));
  if (fits.empty()) {
    return text +
           "; neither smaller micro-batches nor recomputation would make it fit: more ranks "
           "or a smaller model would";
  }
  text += "; what would fit:";
  for (const Fitting& fit : fits) {
    text += "\n  " + fit.change + ": " + format_bytes(static_cast<double>(fit.peak_bytes));
  }
  return text;
}

}  // namespace vitrine
