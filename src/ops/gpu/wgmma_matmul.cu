// Own matrix products on Hopper: what can be run, maps of the copy engine, launch. The kernel and
// its cost are in wgmma_matmul.cuh.
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "ops/gpu/wgmma_launch.h"
#include "ops/gpu/wgmma_matmul.cuh"
#include "ops/gpu/wgmma_matmul.h"

namespace vitrine::gpu {
namespace {

using Kernel = void (*)(CUtensorMap, CUtensorMap, CUtensorMap, WgmmaArguments);

struct Compiled {
  Kernel kernel = nullptr;
  int shared_bytes = 0;
};

template <int kColumns>
Compiled compiled_for(bool a_down, bool b_down) {
  constexpr int kBytes = WgmmaLayout<kColumns>::kBytes;
  if (a_down && b_down) return {wgmma_kernel<kColumns, true, true>, kBytes};
  if (b_down) return {wgmma_kernel<kColumns, false, true>, kBytes};
  if (!a_down) return {wgmma_kernel<kColumns, false, false>, kBytes};
  return {};
}

// None for a contraction that runs down a and along b: no operation has such a product.
Compiled compiled(int tile_columns, const Gemm& g) {
  const bool a_down = g.a.transposed, b_down = !g.b.transposed;
  switch (tile_columns) {
    case 256:
      return compiled_for<256>(a_down, b_down);
    case 192:
      return compiled_for<192>(a_down, b_down);
    case 128:
      return compiled_for<128>(a_down, b_down);
    default:
      return {};
  }
}

// Flags of the parts that are ready: zero between launches, for the owner of a tile clears what it
// waited for. Products of one stream run one after another and share a row.
constexpr int kStreams = 64, kFlags = 1024;
__device__ uint32_t part_flags[kStreams][kFlags];

// Null when more streams have used it than there are rows.
uint32_t* flags_of_stream() {
  static std::mutex mutex;
  static std::map<int, std::map<cudaStream_t, uint32_t*>> rows;
  static thread_local std::map<std::pair<int, cudaStream_t>, uint32_t*> known;
  const int device = limits().device;
  const auto [it, added] = known.emplace(std::pair{device, stream()}, nullptr);
  if (!added) return it->second;
  const std::lock_guard lock(mutex);
  auto& of_device = rows[device];
  const auto row = of_device.find(stream());
  if (row != of_device.end()) return it->second = row->second;
  if (of_device.size() >= kStreams) return nullptr;
  void* all = nullptr;
  VITRINE_GPU_CHECK(cudaGetSymbolAddress(&all, part_flags));
  it->second = static_cast<uint32_t*>(all) + of_device.size() * kFlags;
  of_device.emplace(stream(), it->second);
  return it->second;
}

size_t part_bytes(int workers, int tile_columns) {
  return static_cast<size_t>(workers) * 2 * kWgmmaRows * static_cast<size_t>(tile_columns) *
         sizeof(float);
}

int workers_of(const TileSchedule& tiles, int multiprocessors, bool split) {
  const int all =
      std::max(1, (multiprocessors > 0 ? multiprocessors : limits().multiprocessors) / 2);
  return split ? all : std::min(all, tiles.rows * tiles.columns);
}

TileSchedule schedule_of(const Gemm& g, WgmmaVariant variant, int multiprocessors) {
  TileSchedule tiles;
  tiles.rows = divided_up(g.m, 2 * kWgmmaRows);
  tiles.columns = divided_up(g.n, variant.tile_columns);
  const int workers = workers_of(tiles, multiprocessors, variant.split);
  return TileSchedule::make(
      tiles.rows, tiles.columns, divided_up(g.k, kWgmmaStep), workers, variant.split);
}

}  // namespace

bool wgmma_ready() {
  static std::mutex mutex;
  static std::map<int, bool> known;
  const int device = limits().device;
  const std::lock_guard lock(mutex);
  const auto [it, added] = known.emplace(device, false);
  if (!added || limits().major != 9 || limits().minor != 0) return it->second;
  // Without machine code for sm_90a there are stubs, of few registers.
  constexpr int kStubRegisters = 64;
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, wgmma_kernel<256, false, false>) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  it->second = attributes.numRegs > kStubRegisters;
  return it->second;
}

CUtensorMap tensor_map(const void* data,
                       int64_t rows,
                       int64_t columns,
                       int64_t stride,
                       int box_rows,
                       int box_columns) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    VITRINE_GPU_CHECK(cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result));
    if (!function) throw DeviceError("the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  CUtensorMap map{};
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns),
                            static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result =
      encode(&map,
             CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             2,
             const_cast<void*>(data),
             sizes,
             strides,
             box,
             steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE,
             box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw DeviceError("GPU " + std::to_string(limits().device) + ": no map for a matrix " +
                      std::to_string(rows) + " x " + std::to_string(columns) + ", stride " +
                      std::to_string(stride) + " (error " + std::to_string(result) + ")");
  }
  return map;
}

std::vector<WgmmaVariant> wgmma_variants(const Gemm& g) {
  std::vector<WgmmaVariant> all;
  constexpr int64_t kMost = int64_t{1} << 24;  // counts of tiles and steps stay far inside an int
  const bool fits = g.a.fp8 == Fp8::kNone && g.b.fp8 == Fp8::kNone && g.dtype == DType::kBF16 &&
                    (g.d_dtype == DType::kBF16 || g.d_dtype == DType::kF32) && !g.scales &&
                    std::min({g.m, g.n, g.k}) > 0 && std::max({g.m, g.n, g.k}) <= kMost &&
                    g.n % 8 == 0 && copies_well(g.a.data, g.a.stride) &&
                    copies_well(g.b.data, g.b.stride) && copies_well(g.d, g.d_stride) &&
                    copies_well(g.bias, 0);
  if (!fits || !wgmma_ready()) return all;
  for (const int tile_columns : {256, 192, 128}) {
    if (!compiled(tile_columns, g).kernel) continue;
    all.push_back({tile_columns, false});
    const TileSchedule split = schedule_of(g, {tile_columns, true}, 0);
    const bool useful = split.tail_work > 0 && split.steps >= 8;
    if (useful && part_bytes(split.workers, tile_columns) + kFlags * 4 <= kGemmScratch &&
        split.workers * 4 <= kFlags) {
      all.push_back({tile_columns, true});
    }
  }
  return all;
}

void wgmma_matmul(
    const Gemm& g, WgmmaVariant variant, void* d, void* scratch, int multiprocessors) {
  const Compiled code = compiled(variant.tile_columns, g);
  WgmmaArguments args;
  args.schedule = schedule_of(g, variant, multiprocessors);
  args.m = g.m;
  args.n = g.n;
  args.d_stride = g.d_stride;
  args.added = g.accumulate ? g.d : nullptr;
  args.bias = static_cast<const __nv_bfloat16*>(g.bias);
  const bool f32 = g.d_dtype == DType::kF32;
  args.d_f32 = f32 ? static_cast<float*>(d) : nullptr;
  if (args.schedule.tail_work > 0) {
    args.parts = static_cast<float4*>(scratch);
    args.part_ready = flags_of_stream();
    if (!args.part_ready) {
      args.part_ready = reinterpret_cast<uint32_t*>(
          static_cast<char*>(scratch) + part_bytes(args.schedule.workers, variant.tile_columns));
      VITRINE_GPU_CHECK(cudaMemsetAsync(args.part_ready, 0, kFlags * 4, stream()));
    }
  }
  const CUtensorMap a_map = g.a.transposed ? tensor_map(g.a.data, g.k, g.m, g.a.stride, kWgmmaStep)
                                           : tensor_map(g.a.data, g.m, g.k, g.a.stride, kWgmmaRows);
  const CUtensorMap b_map =
      g.b.transposed ? tensor_map(g.b.data, g.n, g.k, g.b.stride, variant.tile_columns / 2)
                     : tensor_map(g.b.data, g.k, g.n, g.b.stride, kWgmmaStep);
  const CUtensorMap d_map = f32 ? CUtensorMap{} : tensor_map(d, g.m, g.n, g.d_stride, 64);
  launch_clusters(code.kernel,
                  args.schedule.workers,
                  kWgmmaThreads,
                  code.shared_bytes,
                  a_map,
                  b_map,
                  d_map,
                  args);
  VITRINE_GPU_LAUNCHED("wgmma_matmul");
}

}  // namespace vitrine::gpu
