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
template <bool kBackward>
void map_halves(const SwigluProduct& p, void* data, CUtensorMap& gate, CUtensorMap& up) {
  constexpr int kColumns = SwigluLayout<kBackward>::kBoxColumns;
  auto* const first = static_cast<__nv_bfloat16*>(data);
  gate = tensor_map(first, p.m, p.f, 2 * p.f, kBoxRows, kColumns);
  up = tensor_map(first + p.f, p.m, p.f, 2 * p.f, kBoxRows, kColumns);
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
  using Layout = SwigluLayout<false>;
  maps.b = tensor_map(weight, p.f, p.k, p.k, Layout::kColumns);
  maps.b2 = tensor_map(weight + p.f * p.k, p.f, p.k, p.k, Layout::kColumns);
  map_halves<false>(p, p.gate_up, maps.gate, maps.up);
  maps.h = tensor_map(p.out, p.m, p.f, p.f, kBoxRows, Layout::kBoxColumns);
  launch<false>(p, maps, multiprocessors);
}

void wgmma_swiglu_backward(const SwigluProduct& p, int multiprocessors) {
  SwigluMaps maps{};
  maps.a = tensor_map(p.in, p.m, p.k, p.k, kWgmmaRows);
  maps.b = tensor_map(p.weight, p.k, p.f, p.f, kWgmmaStep);
  map_halves<true>(p, p.gate_up, maps.gate, maps.up);
  map_halves<true>(p, p.out, maps.d_gate, maps.d_up);
  launch<true>(p, maps, multiprocessors);
}

}  // namespace vitrine::gpu
