// The kernel of own matrix products on Hopper: persistent clusters of two blocks, each with a warp
// that copies and two warpgroups that multiply.
//
// Cost: 2 m n k operations; 750 to 800 TFLOP/s of bf16 is what the card's power allows. A step of
// 64 along the contraction is 1024 cycles of the tensor cores for a tile of 128 x 256, in which a
// block takes 16 KiB of a and 16 KiB of b out of the L2 cache (its partner sends it the other half
// of b): 32 bytes a cycle; without the partner it were 48, more than the cache gives to all blocks
// at once. What a tile costs besides: its first copies (hidden behind the tile before) and its end,
// about 1000 cycles for 128 x 256 bf16, which is why short contractions reach less.
#pragma once

#include <cstdint>

#include "gpu/vector.cuh"
#include "ops/gpu/wgmma.cuh"
#include "ops/gpu/wgmma_schedule.h"

namespace vitrine::gpu {

constexpr int kWgmmaRows = 128;  // of a block's tile: 64 a warpgroup
constexpr int kWgmmaStep = 64;   // of the contraction: 128 bytes
constexpr int kWgmmaThreads = 384;

// What the kernel takes besides the maps of the copy engine.
struct WgmmaArguments {
  TileSchedule schedule;
  int64_t m = 0, n = 0, d_stride = 0;
  const void* added = nullptr;          // [m, n] of d's type and stride; null: nothing
  const __nv_bfloat16* bias = nullptr;  // [n] or null
  float* d_f32 = nullptr;               // null: d is bf16 and written by its map
  float4* parts = nullptr;              // of shared tiles: a tile of sums a block
  uint32_t* part_ready = nullptr;       // one a warpgroup of the grid, 0; left 0
};

// Bytes of shared memory and how they are cut; the swizzle wants pieces at multiples of 1024.
template <int kColumns>
struct WgmmaLayout {
  static constexpr int kA = kWgmmaRows * kWgmmaStep * 2;
  static constexpr int kB = kColumns * kWgmmaStep * 2;
  static constexpr int kStage = kA + kB;
  static constexpr int kOut = 2 * 64 * 64 * 2;  // two boxes of 64 x 64 for each warpgroup
  static constexpr int kMost = 227 * 1024 - 2048;
  static constexpr int kStages = (kMost - 2 * kOut) / kStage;
  static constexpr int kBytes = kStages * kStage + 2 * kOut + 2048;
};

#if VITRINE_WGMMA

// Where a thread's sums lie in its warpgroup's tile.
struct WgmmaPlace {
  int row, column;  // of sums[0]
  __device__ WgmmaPlace() {
    const int t = static_cast<int>(threadIdx.x) % 128;
    row = t / 32 * 16 + t % 32 / 4;
    column = t % 4 * 2;
  }
};

template <int kColumns, bool kADown, bool kBDown>
__device__ __forceinline__ void wgmma_copies(const CUtensorMap& a_map,
                                             const CUtensorMap& b_map,
                                             const TileSchedule& schedule,
                                             int worker,
                                             int rank,
                                             uint32_t tiles,
                                             uint32_t barriers) {
  using namespace hopper;
  using Layout = WgmmaLayout<kColumns>;
  int stage = 0;
  uint32_t phase = 0;
  for (TileParts parts(schedule, worker); parts.more(); parts.next()) {
    const TilePart part = parts.part();
    const int row = (part.row * 2 + rank) * kWgmmaRows, column = part.column * kColumns;
    for (int step = part.begin; step < part.end; ++step) {
      const uint32_t full = barriers + 8 * stage, empty = full + 8 * Layout::kStages;
      const uint32_t a = tiles + stage * Layout::kStage, b = a + Layout::kA;
      const int k = step * kWgmmaStep;
      barrier_wait(empty, phase ^ 1);
      barrier_expect(full, Layout::kStage);
      if constexpr (kADown) {
        copy_in(a, &a_map, full, row, k);
        copy_in(a + Layout::kA / 2, &a_map, full, row + 64, k);
      } else {
        copy_in(a, &a_map, full, k, row);
      }
      // Each block fetches a half of b for both; pieces of 64 columns can't be halved.
      if constexpr (kBDown) {
        for (int piece = rank; piece < kColumns / 64; piece += 2) {
          copy_in_both(b + piece * 64 * kWgmmaStep * 2, &b_map, full, column + piece * 64, k);
        }
      } else {
        const int half = rank * (kColumns / 2);
        copy_in_both(b + half * kWgmmaStep * 2, &b_map, full, k, column + half);
      }
      if (++stage == Layout::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  }
}

// Leaves the sums of a part for the tile's owner.
template <int N>
__device__ __forceinline__ void leave_part(const float (&sums)[N], float4* to, uint32_t* ready) {
  const int t = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    __stcg(to + i * 128 + t,
           make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  }
  __threadfence();
  hopper::warpgroup_sync(1 + static_cast<int>(threadIdx.x) / 128);
  if (t == 0) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(ready) : "memory");
}

template <int N>
__device__ __forceinline__ void add_part(float (&sums)[N], const float4* from, uint32_t* ready) {
  const int t = static_cast<int>(threadIdx.x) % 128;
  if (t == 0) {
    uint32_t there = 0;
    while (there == 0) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(ready) : "memory");
    }
    *ready = 0;
    __threadfence();
  }
  hopper::warpgroup_sync(1 + static_cast<int>(threadIdx.x) / 128);
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    const float4 other = __ldcg(from + i * 128 + t);
    sums[4 * i] += other.x;
    sums[4 * i + 1] += other.y;
    sums[4 * i + 2] += other.z;
    sums[4 * i + 3] += other.w;
  }
}

// Adds bias and what d had. `row`, `column`: of sums[0] in d; columns come in pairs inside n.
template <int N, typename T>
__device__ __forceinline__ void add_terms(
    float (&sums)[N], const WgmmaArguments& args, const T* added, int64_t row, int64_t column) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const int64_t at = column + 8 * j;
    if (at >= args.n) continue;
    if (args.bias) {
      const Vec<__nv_bfloat16, 2> bias = load<2>(args.bias + at);
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[4 * j + i] += to_wide(bias.v[i % 2]);
    }
    if (!added) continue;
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      if (row + 8 * below >= args.m) continue;
      const Vec<T, 2> old = load<2>(added + (row + 8 * below) * args.d_stride + at);
      sums[4 * j + 2 * below] += to_wide(old.v[0]);
      sums[4 * j + 2 * below + 1] += to_wide(old.v[1]);
    }
  }
}

template <int N>
__device__ __forceinline__ void write_f32(const float (&sums)[N],
                                          const WgmmaArguments& args,
                                          int64_t row,
                                          int64_t column) {
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    const int64_t at = column + 8 * j;
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      if (at >= args.n || row + 8 * below >= args.m) continue;
      *reinterpret_cast<float2*>(args.d_f32 + (row + 8 * below) * args.d_stride + at) =
          make_float2(sums[4 * j + 2 * below], sums[4 * j + 2 * below + 1]);
    }
  }
}

__device__ __forceinline__ uint32_t packed(float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return reinterpret_cast<const uint32_t&>(both);
}

// Eight columns times eight of a box of 64 x 64 in swizzled rows of 128 bytes, from sums[first...].
template <int N>
__device__ __forceinline__ void stage_box(const float (&sums)[N], int first, uint32_t box) {
  const int lane = static_cast<int>(threadIdx.x) % 32,
            warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int row = warp * 16 + lane % 16;
  const uint32_t row_at = box + row * 128;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const int at = first + 4 * j, piece = j + lane / 16;
    hopper::store_matrices(row_at + ((piece ^ row % 8) * 16),
                           packed(sums[at], sums[at + 1]),
                           packed(sums[at + 2], sums[at + 3]),
                           packed(sums[at + 4], sums[at + 5]),
                           packed(sums[at + 6], sums[at + 7]));
  }
}

// A warpgroup's 64 rows of bf16 through its two boxes: one is filled while the other is sent.
template <int N>
__device__ __forceinline__ void write_bf16(
    const float (&sums)[N], const CUtensorMap& d_map, uint32_t boxes, int row, int column) {
  using namespace hopper;
  const int group = static_cast<int>(threadIdx.x) / 128;
  const bool sends = threadIdx.x % 128 == 0;
#pragma unroll
  for (int piece = 0; piece < N / 32; ++piece) {
    const uint32_t box = boxes + piece % 2 * (64 * 64 * 2);
    if (sends) {
      // An odd count of pieces begins a tile with the box that was sent last.
      if (N / 32 % 2 == 1 && piece == 0) {
        copies_out_read<0>();
      } else {
        copies_out_read<1>();
      }
    }
    warpgroup_sync(1 + group);
    stage_box(sums, piece * 32, box);
    stores_before_copies();
    warpgroup_sync(1 + group);
    if (sends) {
      copy_out(&d_map, box, column + piece * 64, row);
      copies_out_commit();
    }
  }
}

template <int kColumns, bool kADown, bool kBDown>
__device__ __forceinline__ void wgmma_products(const CUtensorMap& d_map,
                                               const WgmmaArguments& args,
                                               int worker,
                                               int rank,
                                               uint32_t tiles,
                                               uint32_t barriers) {
  using namespace hopper;
  using Layout = WgmmaLayout<kColumns>;
  constexpr int N = kColumns / 2;  // sums a thread
  const TileSchedule& schedule = args.schedule;
  // The same in all lanes, and known to be: addresses stay in uniform registers.
  const int group = __shfl_sync(VITRINE_FULL_MASK, static_cast<int>(threadIdx.x) / 128 - 1, 0);
  const uint32_t boxes = tiles + Layout::kStages * Layout::kStage + group * Layout::kOut;
  const int t = static_cast<int>(threadIdx.x) % 128;
  const WgmmaPlace place;
  const auto part_slot = [&](int w) { return (w * 2 + rank) * 2 + group; };
  int stage = 0;
  uint32_t phase = 0;
  constexpr uint32_t kPiece = 64 * kWgmmaStep * 2;
  const uint64_t a_first = operand_of(tiles + group * (Layout::kA / 2), kPiece);
  const uint64_t b_first = operand_of(tiles + Layout::kA, kPiece);
  float sums[N];
  for (TileParts parts(schedule, worker); parts.more(); parts.next()) {
    const TilePart part = parts.part();
    uint32_t before = 0;  // the barrier of the stage that is still being read
    for (int step = part.begin; step < part.end; ++step) {
      const uint32_t full = barriers + 8 * stage, empty = full + 8 * Layout::kStages;
      barrier_wait(full, phase);
      products_fence();
      // Sixteen of the contraction further: 32 bytes along a row, or 16 rows down.
      const uint64_t at = static_cast<uint64_t>(stage * Layout::kStage) >> 4;
#pragma unroll
      for (int k = 0; k < kWgmmaStep / 16; ++k) {
        product<kADown, kBDown>(sums,
                                a_first + at + (k * (kADown ? 2048 : 32) >> 4),
                                b_first + at + (k * (kBDown ? 2048 : 32) >> 4),
                                k > 0 || step > part.begin);
      }
      products_commit();
      products_wait<1>();
      if (before && t < 2) barrier_arrive(before, t);
      before = empty;
      if (++stage == Layout::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    products_wait<0>();
    pin(sums);
    if (t < 2) barrier_arrive(before, t);
    if (part.begin > 0) {
      leave_part(sums,
                 args.parts + static_cast<int64_t>(part_slot(worker)) * (N / 4 * 128),
                 args.part_ready + part_slot(worker));
      continue;
    }
    int missing = schedule.steps - part.end;
    for (int other = worker + 1; missing > 0; ++other) {
      const int work = schedule.tail_begin(other + 1) - schedule.tail_begin(other);
      if (work == 0) continue;
      add_part(sums,
               args.parts + static_cast<int64_t>(part_slot(other)) * (N / 4 * 128),
               args.part_ready + part_slot(other));
      missing -= work;
    }
    const int row = (part.row * 2 + rank) * kWgmmaRows + group * 64,
              column = part.column * kColumns;
    if (args.d_f32) {
      add_terms(sums,
                args,
                static_cast<const float*>(args.added),
                row + place.row,
                column + place.column);
      write_f32(sums, args, row + place.row, column + place.column);
    } else {
      if (args.bias || args.added) {
        add_terms(sums,
                  args,
                  static_cast<const __nv_bfloat16*>(args.added),
                  row + place.row,
                  column + place.column);
      }
      write_bf16(sums, d_map, boxes, row, column);
    }
  }
  if (t == 0) copies_out_done();
}

#endif  // VITRINE_WGMMA

// A stub of few registers where it was not compiled for sm_90a; the host looks.
template <int kColumns, bool kADown, bool kBDown>
__global__ __launch_bounds__(kWgmmaThreads,
                             1) void wgmma_kernel(const __grid_constant__ CUtensorMap a_map,
                                                  const __grid_constant__ CUtensorMap b_map,
                                                  const __grid_constant__ CUtensorMap d_map,
                                                  const __grid_constant__ WgmmaArguments args) {
#if VITRINE_WGMMA
  using namespace hopper;
  using Layout = WgmmaLayout<kColumns>;
  extern __shared__ uint8_t shared[];
  const uint32_t barriers = shared_address(shared);
  const uint32_t tiles = (barriers + 16 * Layout::kStages + 1023) / 1024 * 1024;
  const int rank = cluster_rank();
  // Workers count down as blocks count up: an owner waits only for blocks launched before its own,
  // so the grid need not fit on the multiprocessors at once.
  const int worker = args.schedule.workers - 1 - static_cast<int>(blockIdx.x) / 2;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Layout::kStages; ++stage) {
      barrier_init(barriers + 8 * stage, 1);
      // Two warpgroups of each block of the cluster read what arrives.
      barrier_init(barriers + 8 * (Layout::kStages + stage), 4);
    }
    barriers_made();
  }
  cluster_sync();
  if (threadIdx.x < 128) {
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      prefetch_map(&a_map);
      prefetch_map(&b_map);
      wgmma_copies<kColumns, kADown, kBDown>(
          a_map, b_map, args.schedule, worker, rank, tiles, barriers);
    }
  } else {
    more_registers<232>();
    wgmma_products<kColumns, kADown, kBDown>(d_map, args, worker, rank, tiles, barriers);
  }
  __syncwarp();
  // A block's shared memory and barriers outlive its partner's last use of them.
  cluster_sync();
#else
  static_cast<void>(a_map);
  static_cast<void>(b_map);
  static_cast<void>(d_map);
  static_cast<void>(args);
#endif
}

}  // namespace vitrine::gpu
