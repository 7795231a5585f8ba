// Two products of a gated feed-forward block whose ends do the work of swiglu: [gate | up] =
// x w_gate_upᵀ with h = silu(gate) up, and d[gate | up] of swiglu with dh = dy w_down.
//
// Contractions are short here (the width of the model: 24 steps of 64), so the two warpgroups take
// turns: one multiplies a tile of 128 x 192 while the other ends its own. Cost at 16384 tokens,
// 1536 wide, 8960 hidden features: 0.90 TFLOP and 0.99 GB forward, 0.45 TFLOP and 1.25 GB backward,
// where a product and a pass of swiglu move 1.58 and 1.84 GB. An end moves 72 KiB (forward) or 192
// KiB (backward) at a block's share of memory, 22 bytes a cycle: 3300 and 9000 cycles, hidden under
// the 18,400 of the other's product. Measured on a H200 at its power limit with tiles of 128 x 128:
// 1266 us (cuBLASLt's product alone 1298, the pass 211) and 765 us (636 and 378). They took 48
// bytes a cycle from the L2 cache where these take 37: now 0.95 to 1.00 of the time forward, 0.96
// to 1.01 backward, at five shapes.
#pragma once

#include <cstdint>

#include "ops/gpu/wgmma_matmul.cuh"

namespace vitrine::gpu {

// All matrices are bf16. Forward: a = x [m, k]; b, b2 = the rows of w_gate_up [2f, k] for gate and
// up; gate, up, h [m, f] are written. Backward: a = dy [m, k]; b = w_down [k, f]; gate and up are
// read, d_gate and d_up [m, f] written (they may be the same memory).
struct SwigluMaps {
  CUtensorMap a, b, b2, gate, up, h, d_gate, d_up;
};

constexpr int kSwigluN = 192;  // columns of a tile's product
constexpr int kSwigluSums = kSwigluN / 2;

template <bool kBackward>
struct SwigluLayout {
  static constexpr int kA = kWgmmaRows * kWgmmaStep * 2;
  static constexpr int kB = kSwigluN * kWgmmaStep * 2;
  static constexpr int kStage = kA + kB;
  static constexpr int kStages = 4;
  static constexpr int kColumns = kBackward ? kSwigluN : kSwigluN / 2;  // of f that a tile covers
  // A box is 64 rows of 64 columns in rows of 128 bytes, or (forward) of 32 in rows of 64 bytes.
  static constexpr int kBoxColumns = kBackward ? 64 : 32;
  static constexpr int kBox = 64 * kBoxColumns * 2;
  // A warpgroup's: gate and up twice; or what 64 rows of gate, up or h fill, twice.
  static constexpr int kBoxes = kBackward ? 4 : 2 * kColumns / kBoxColumns;
  static constexpr int kBytes = kStages * kStage + 2 * kBoxes * kBox + 2048;
};

#if VITRINE_WGMMA

__device__ __forceinline__ float2 unpacked(uint32_t both) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(both));
}
__device__ __forceinline__ float fast_sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}
__device__ __forceinline__ uint32_t hidden_of(uint32_t gates, uint32_t ups) {
  const float2 g = unpacked(gates), u = unpacked(ups);
  return packed(g.x * fast_sigmoid(g.x) * u.x, g.y * fast_sigmoid(g.y) * u.y);
}

// Where a lane's share of piece j (16 bytes) of a swizzled box begins, for load_ and store_matrices
// of eight columns times two from 8 j.
template <int kColumns>
__device__ __forceinline__ uint32_t box_place(uint32_t box, int j) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane % 16;
  const int swizzle = kColumns == 64 ? row % 8 : row / 2 % 4;
  return box + row * (2 * kColumns) + (((j + lane / 16) ^ swizzle) * 16);
}

template <bool kBackward>
__device__ __forceinline__ void swiglu_copies(const SwigluMaps& maps,
                                              const TileSchedule& schedule,
                                              int worker,
                                              int rank,
                                              uint32_t tiles,
                                              uint32_t barriers) {
  using namespace hopper;
  using Layout = SwigluLayout<kBackward>;
  int stage = 0;
  uint32_t phase = 0;
  for (TileParts parts(schedule, worker); parts.more(); parts.next()) {
    const TilePart part = parts.part();
    const int row = (part.row * 2 + rank) * kWgmmaRows, column = part.column * Layout::kColumns;
    for (int step = 0; step < part.end; ++step) {
      const uint32_t full = barriers + 8 * stage, empty = full + 8 * Layout::kStages;
      const uint32_t a = tiles + stage * Layout::kStage, b = a + Layout::kA;
      const int k = step * kWgmmaStep;
      barrier_wait(empty, phase ^ 1);
      barrier_expect(full, Layout::kStage);
      copy_in(a, &maps.a, full, k, row);
      // Each block fetches a part of b for both: gate's rows or up's, or two of the three pieces of
      // 64 columns or one.
      if constexpr (kBackward) {
        for (int piece = rank; piece < kSwigluN / 64; piece += 2) {
          copy_in_both(b + piece * 64 * kWgmmaStep * 2, &maps.b, full, column + piece * 64, k);
        }
      } else {
        copy_in_both(b + rank * (Layout::kB / 2), rank == 0 ? &maps.b : &maps.b2, full, k, column);
      }
      if (++stage == Layout::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  }
}

constexpr int kTurns = 4;  // names of barriers: of the first warpgroup's turn, of the second's

// One warpgroup's product of 128 x kSwigluN: sums[i] are rows 64 i and on. `group`'s turn begins
// when the other has seen all of its stages: a barrier tells one phase from the next, not from the
// one after that, so nobody may wait for a stage early.
template <bool kBackward>
__device__ __forceinline__ void swiglu_product(float (&sums)[2][kSwigluSums],
                                               int group,
                                               int steps,
                                               int& stage,
                                               uint32_t& phase,
                                               uint32_t tiles,
                                               uint32_t barriers) {
  using namespace hopper;
  using Layout = SwigluLayout<kBackward>;
  constexpr uint32_t kPiece = 64 * kWgmmaStep * 2;
  const int t = static_cast<int>(threadIdx.x) % 128;
  const uint64_t a_first = operand_of(tiles, kPiece);
  const uint64_t b_first = operand_of(tiles + Layout::kA, kPiece);
  uint32_t before = 0;
  // Not needed by the first product, but else the last tile's would seem to live through its end.
#pragma unroll
  for (int i = 0; i < kSwigluSums; ++i) sums[0][i] = sums[1][i] = 0;
  turn_wait(kTurns + group);
  for (int step = 0; step < steps; ++step) {
    const uint32_t full = barriers + 8 * stage, empty = full + 8 * Layout::kStages;
    const uint64_t at = static_cast<uint64_t>(stage * Layout::kStage) >> 4;
    barrier_wait(full, phase);
    products_fence();
#pragma unroll
    for (int k = 0; k < kWgmmaStep / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        product<false, kBackward>(sums[i],
                                  a_first + at + ((k * 32 + i * (Layout::kA / 2)) >> 4),
                                  b_first + at + (k * (kBackward ? 2048 : 32) >> 4),
                                  k > 0 || step > 0);
      }
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
  turn_give(kTurns + 1 - group);
  products_wait<0>();
  pin(sums[0]);
  pin(sums[1]);
  if (t < 2) barrier_arrive(before, t);
}

// Gate, up and h of 128 rows and 96 features, 64 rows of one at a time: its boxes are filled while
// those before are sent.
__device__ __forceinline__ void end_forward(const float (&sums)[2][kSwigluSums],
                                            const SwigluMaps& maps,
                                            uint32_t boxes,
                                            int row,
                                            int column) {
  using namespace hopper;
  using Layout = SwigluLayout<false>;
  constexpr int kWords = kSwigluSums / 4;  // of gate, and of up, a thread and 64 rows
  const int name = static_cast<int>(threadIdx.x) / 128 + 1;
  const bool sends = threadIdx.x % 128 == 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t gate[kWords], up[kWords];
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      gate[j] = packed(sums[i][2 * j], sums[i][2 * j + 1]);
      up[j] = packed(sums[i][2 * kWords + 2 * j], sums[i][2 * kWords + 2 * j + 1]);
    }
#pragma unroll
    for (int piece = 0; piece < 3; ++piece) {
      const uint32_t first = boxes + (3 * i + piece) % 2 * (Layout::kBoxes / 2 * Layout::kBox);
      if (sends) copies_out_read<1>();
      warpgroup_sync(name);
#pragma unroll
      for (int j = 0; j < kWords; j += 4) {
        uint32_t words[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          // h takes the rounded values, as a pass of its own would.
          words[w] = piece == 0   ? gate[j + w]
                     : piece == 1 ? up[j + w]
                                  : hidden_of(gate[j + w], up[j + w]);
        }
        // Eight columns are two words a thread, a box's width eight.
        store_matrices(box_place<32>(first + j / 8 * Layout::kBox, j % 8 / 2),
                       words[0],
                       words[1],
                       words[2],
                       words[3]);
      }
      stores_before_copies();
      warpgroup_sync(name);
      if (sends) {
        const CUtensorMap* const map = piece == 0 ? &maps.gate : piece == 1 ? &maps.up : &maps.h;
#pragma unroll
        for (int box = 0; box < Layout::kBoxes / 2; ++box) {
          copy_out(map, first + box * Layout::kBox, column + box * 32, row + 64 * i);
        }
        copies_out_commit();
      }
    }
  }
}

// The gradients of gate and up of 128 rows and 192 features, in pieces of 64 x 64: boxes of gate
// and up come in, are overwritten with their gradients and go out. Two pairs of boxes, so that one
// comes while the other is worked on.
class BackwardEnd {
 public:
  using Layout = SwigluLayout<true>;
  static constexpr int kAcross = kSwigluN / 64, kPieces = 2 * kAcross;
  __device__ BackwardEnd(const SwigluMaps& maps, uint32_t boxes, uint32_t barriers)
      : maps_(maps),
        boxes_(boxes),
        barriers_(barriers),
        sends_(threadIdx.x % 128 == 0),
        name_(static_cast<int>(threadIdx.x) / 128 + 1) {}

  // Asks for the first two pieces; the product runs meanwhile.
  __device__ void begin(int row, int column) {
    row_ = row;
    column_ = column;
    if (!sends_) return;
    hopper::copies_out_read<0>();
    fetch(0);
    fetch(1);
  }

  __device__ void finish(const float (&sums)[2][kSwigluSums]) {
    using namespace hopper;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint32_t gates = boxes_ + piece % 2 * 2 * Layout::kBox, ups = gates + Layout::kBox;
      barrier_wait(barriers_ + piece % 2 * 8, phase_);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        uint32_t gate[4], up[4];
        load_matrices(box_place<64>(gates, j), gate);
        load_matrices(box_place<64>(ups, j), up);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int at = piece % kAcross * 32 + 4 * j + 2 * w;
          differentiate(sums[piece / kAcross][at], sums[piece / kAcross][at + 1], gate[w], up[w]);
        }
        store_matrices(box_place<64>(gates, j), gate[0], gate[1], gate[2], gate[3]);
        store_matrices(box_place<64>(ups, j), up[0], up[1], up[2], up[3]);
      }
      stores_before_copies();
      warpgroup_sync(name_);
      if (sends_) {
        copy_out(&maps_.d_gate, gates, column_of(piece), row_of(piece));
        copy_out(&maps_.d_up, ups, column_of(piece), row_of(piece));
        copies_out_commit();
        if (piece + 2 < kPieces) {
          copies_out_read<0>();
          fetch(piece + 2);
        }
      }
      if (piece % 2 == 1) phase_ ^= 1;
    }
  }

 private:
  // dh is rounded as a pass of its own would find it.
  static __device__ __forceinline__ void differentiate(float first,
                                                       float second,
                                                       uint32_t& gate,
                                                       uint32_t& up) {
    const float2 d = unpacked(packed(first, second)), g = unpacked(gate), u = unpacked(up);
    const float s = fast_sigmoid(g.x), r = fast_sigmoid(g.y);
    gate = packed(d.x * u.x * s * (1 + g.x * (1 - s)), d.y * u.y * r * (1 + g.y * (1 - r)));
    up = packed(d.x * g.x * s, d.y * g.y * r);
  }
  __device__ int row_of(int piece) const { return row_ + piece / kAcross * 64; }
  __device__ int column_of(int piece) const { return column_ + piece % kAcross * 64; }
  __device__ void fetch(int piece) {
    const uint32_t gates = boxes_ + piece % 2 * 2 * Layout::kBox;
    const uint32_t barrier = barriers_ + piece % 2 * 8;
    const int row = row_of(piece), column = column_of(piece);
    hopper::barrier_expect(barrier, 2 * Layout::kBox);
    hopper::copy_in(gates, &maps_.gate, barrier, column, row);
    hopper::copy_in(gates + Layout::kBox, &maps_.up, barrier, column, row);
  }

  const SwigluMaps& maps_;
  const uint32_t boxes_, barriers_;
  const bool sends_;
  const int name_;
  int row_ = 0, column_ = 0;
  uint32_t phase_ = 0;
};

template <bool kBackward>
__device__ __forceinline__ void swiglu_tiles(const SwigluMaps& maps,
                                             const TileSchedule& schedule,
                                             int worker,
                                             int rank,
                                             uint32_t tiles,
                                             uint32_t barriers) {
  using Layout = SwigluLayout<kBackward>;
  const int group = __shfl_sync(VITRINE_FULL_MASK, static_cast<int>(threadIdx.x) / 128 - 1, 0);
  const uint32_t boxes =
      tiles + Layout::kStages * Layout::kStage + group * Layout::kBoxes * Layout::kBox;
  BackwardEnd backward(maps, boxes, barriers + 16 * Layout::kStages + group * 16);
  if (group == 1) hopper::turn_give(kTurns);  // the first turn is the other's
  float sums[2][kSwigluSums];
  int stage = 0, turn = 0;
  uint32_t phase = 0;
  for (TileParts parts(schedule, worker); parts.more(); parts.next(), ++turn) {
    const TilePart part = parts.part();
    if (turn % 2 != group) {  // the other's steps go by
      const int ahead = stage + schedule.steps;
      stage = ahead % Layout::kStages;
      phase ^= static_cast<uint32_t>(ahead / Layout::kStages & 1);
      continue;
    }
    const int row = (part.row * 2 + rank) * kWgmmaRows, column = part.column * Layout::kColumns;
    if constexpr (kBackward) backward.begin(row, column);
    swiglu_product<kBackward>(sums, group, schedule.steps, stage, phase, tiles, barriers);
    if constexpr (kBackward) {
      backward.finish(sums);
    } else {
      end_forward(sums, maps, boxes, row, column);
    }
  }
  if (threadIdx.x % 128 == 0) hopper::copies_out_done();
}

#endif  // VITRINE_WGMMA

template <bool kBackward>
__global__ __launch_bounds__(kWgmmaThreads, 1) void swiglu_product_kernel(
    const __grid_constant__ SwigluMaps maps, const __grid_constant__ TileSchedule schedule) {
#if VITRINE_WGMMA
  using namespace hopper;
  using Layout = SwigluLayout<kBackward>;
  extern __shared__ uint8_t shared[];
  const uint32_t barriers = shared_address(shared);
  const uint32_t tiles = (barriers + 16 * Layout::kStages + 32 + 1023) / 1024 * 1024;
  const int rank = cluster_rank(), worker = static_cast<int>(blockIdx.x) / 2;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Layout::kStages; ++stage) {
      barrier_init(barriers + 8 * stage, 1);
      // The warpgroup whose turn it is, of each block of the cluster.
      barrier_init(barriers + 8 * (Layout::kStages + stage), 2);
    }
    for (int i = 0; i < 4; ++i) barrier_init(barriers + 16 * Layout::kStages + 8 * i, 1);
    barriers_made();
  }
  cluster_sync();
  if (threadIdx.x < 128) {
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      swiglu_copies<kBackward>(maps, schedule, worker, rank, tiles, barriers);
    }
  } else {
    more_registers<232>();
    swiglu_tiles<kBackward>(maps, schedule, worker, rank, tiles, barriers);
  }
  __syncwarp();
  cluster_sync();
#else
  static_cast<void>(maps);
  static_cast<void>(schedule);
#endif
}

}  // namespace vitrine::gpu
