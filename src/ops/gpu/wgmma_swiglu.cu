// Launch of products with swiglu in their ends; the kernels and their cost are in
// wgmma_swiglu.cuh.
#include <algorithm>

#include "ops/gpu/wgmma_launch.h"
#include "ops/gpu/wgmma_swiglu.cuh"
#include "ops/gpu/wgmma_swiglu.h"

namespace vitrine::gpu {
namespace {

constexpr int kBoxRows = 64;

// The halves of a matrix [m, 2f].
void map_halves(const SwigluProduct& p, void* data, CUtensorMap& gate, CUtensorMap& up) {
  auto* const first = static_cast<__nv_bfloat16*>(data);
  gate = tensor_map(first, p.m, p.f, 2 * p.f, kBoxRows);
  up = tensor_map(first + p.f, p.m, p.f, 2 * p.f, kBoxRows);
}

template <bool kBackward>
void launch(const SwigluProduct& p, const SwigluMaps& maps, int multiprocessors) {
  const int all = multiprocessors > 0 ? multiprocessors : limits().multiprocessors;
  const int rows = divided_up(p.m, 2 * kWgmmaRows);
  const int columns = divided_up(p.f, SwigluLayout<kBackward>::kColumns);
  const int workers = std::clamp(all / 2, 1, rows * columns);
  const TileSchedule schedule =
      TileSchedule::make(rows, columns, divided_up(p.k, kWgmmaStep), workers, false);
  launch_clusters(swiglu_product_kernel<kBackward>,
                  workers,
                  kWgmmaThreads,
                  SwigluLayout<kBackward>::kBytes,
                  maps,
                  schedule);
  VITRINE_GPU_LAUNCHED("wgmma_swiglu");
}

}  // namespace

bool wgmma_swiglu_fits(const SwigluProduct& p) {
  constexpr int64_t kMost = int64_t{1} << 24;  // counts of tiles stay far inside an int
  return std::min({p.m, p.k, p.f}) > 0 && std::max({p.m, p.k, 2 * p.f}) <= kMost &&
         copies_well(p.in, p.k) && copies_well(p.weight, p.f) && copies_well(p.gate_up, p.f) &&
         copies_well(p.out, p.f) && wgmma_ready();
}

void wgmma_swiglu_forward(const SwigluProduct& p, int multiprocessors) {
  SwigluMaps maps{};
  const auto* const weight = static_cast<const __nv_bfloat16*>(p.weight);
  maps.a = tensor_map(p.in, p.m, p.k, p.k, kWgmmaRows);
  maps.b = tensor_map(weight, p.f, p.k, p.k, 64);
  maps.b2 = tensor_map(weight + p.f * p.k, p.f, p.k, p.k, 64);
  map_halves(p, p.gate_up, maps.gate, maps.up);
  maps.h = tensor_map(p.out, p.m, p.f, p.f, kBoxRows);
  launch<false>(p, maps, multiprocessors);
}

void wgmma_swiglu_backward(const SwigluProduct& p, int multiprocessors) {
  SwigluMaps maps{};
  maps.a = tensor_map(p.in, p.m, p.k, p.k, kWgmmaRows);
  maps.b = tensor_map(p.weight, p.k, p.f, p.f, kWgmmaStep);
  map_halves(p, p.gate_up, maps.gate, maps.up);
  map_halves(p, p.out, maps.d_gate, maps.d_up);
  launch<true>(p, maps, multiprocessors);
}

}  // namespace vitrine::gpu
