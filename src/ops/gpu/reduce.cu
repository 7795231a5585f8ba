// How reductions are cut into blocks.
#include "ops/gpu/reduce.cuh"

namespace vitrine::gpu {
namespace {

constexpr int64_t kMultiprocessors = 132;  // of H200; elsewhere the cut, and with it the bits, stay

constexpr int64_t ceiling(int64_t n, int64_t d) { return (n + d - 1) / d; }

// The share of `places` that `blocks` blocks use, all rounds together.
double filled(int64_t blocks, int64_t places) {
  return static_cast<double>(blocks) / static_cast<double>(ceiling(blocks, places) * places);
}

}  // namespace

ReducePlan plan_reduce(const ReduceShape& shape, int sums, int vector, bool wide) {
  constexpr double kGood = 0.7, kClearlyBetter = 0.05;
  ReducePlan plan;
  const int64_t all = shape.sums(), in_flight = kReduceInFlight / sums;
  const auto places = [&](int threads) {
    return kMultiprocessors * (reduce_resident(sums) / threads);
  };
  int64_t rows = 0;  // that a block takes at once
  if (shape.columns) {
    plan.vectors = wide && shape.kept[2].value % vector == 0;
    const int64_t across = shape.keeps() / (plan.vectors ? vector : 1);
    double best = kGood;
    int64_t blocks = 0;
    struct Choice {
      int lanes, threads;
    };
    for (const auto& [lanes, threads] : {Choice{VITRINE_WARP, kReduceThreads},
                                         Choice{kReduceFewLanes, kReduceThreads},
                                         Choice{kReduceFewLanes, kReduceResident}}) {
      const bool made = lanes == VITRINE_WARP || plan.vectors;
      if (!made || (threads > kReduceThreads && sums > 1)) continue;
      if (all < threads / lanes * in_flight) continue;
      const double share = filled(ceiling(across, lanes), places(threads));
      if (share < best) continue;
      best = share + kClearlyBetter;
      blocks = ceiling(across, lanes);
      plan.lanes = lanes;
      plan.threads = threads;
    }
    if (blocks > 0) {
      plan.across = blocks;
      plan.chunk = std::max<int64_t>(1, all);
      return plan;
    }
    const bool idle = ceiling(across, VITRINE_WARP) * VITRINE_WARP * 10 > across * 11;
    if (plan.vectors && idle) plan.lanes = kReduceFewLanes;
    plan.across = ceiling(across, plan.lanes);
    rows = plan.threads / plan.lanes;
  } else {
    plan.across = ceiling(shape.keeps(), kReduceThreads / VITRINE_WARP);
    rows = VITRINE_WARP * kReduceInFlight;
  }
  // Whole rounds of a block, and enough of them that its own sum is little beside them.
  constexpr int64_t kLeastRounds = 4;
  plan.across = std::max<int64_t>(1, plan.across);
  const int64_t wanted = std::max<int64_t>(1, places(kReduceThreads) / plan.across);
  plan.chunk = std::max(kLeastRounds, ceiling(ceiling(all, wanted), rows)) * rows;
  plan.chunks = std::max<int64_t>(1, ceiling(all, plan.chunk));
  return plan;
}

}  // namespace vitrine::gpu
