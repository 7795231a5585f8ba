// Hopper's asynchronous machinery as functions: barriers in shared memory, the tensor copy engine,
// products of a warpgroup (PTX ISA: mbarrier, cp.async.bulk.tensor, wgmma). Machine code of sm_90a
// alone.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "gpu/vendor.h"

// Whether the pass that compiles this can use them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define VITRINE_WGMMA 1
#else
#define VITRINE_WGMMA 0
#endif

namespace vitrine::gpu::hopper {

#if VITRINE_WGMMA

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// A barrier of one phase bit. Addresses are those of shared memory. What waits and arrivals order
// is the copy engine and the tensor cores, which are done when a thread arrives: release and
// acquire beyond the block would make every arrival wait for the L2 cache.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Barriers made so far are seen by the copy engine and the other blocks of the cluster.
__device__ __forceinline__ void barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Arrives at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, int rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// The box of `map` whose first element is (x, y), x along the contiguous dimension, to shared
// memory; its bytes count at `barrier`. Outside the matrix it is zero.
__device__ __forceinline__ void copy_in(
    uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(map),
      "r"(barrier),
      "r"(x),
      "r"(y)
      : "memory");
}
// The same to both blocks of a cluster of two, at the same place, counting at each one's barrier.
__device__ __forceinline__ void copy_in_both(
    uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map),
      "r"(barrier),
      "r"(x),
      "r"(y),
      "h"(static_cast<uint16_t>(3))
      : "memory");
}
// A box from shared memory; what lies outside the matrix is not written.
__device__ __forceinline__ void copy_out(const CUtensorMap* map, uint32_t from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(from),
      "r"(x),
      "r"(y)
      : "memory");
}
__device__ __forceinline__ void copies_out_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// All but the last `kPending` groups of this thread have read their shared memory.
template <int kPending>
__device__ __forceinline__ void copies_out_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void copies_out_done() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Ordinary stores to shared memory before this are seen by the copy engine after a barrier.
__device__ __forceinline__ void stores_before_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// A barrier of one warpgroup; `name` from 1 to 15.
__device__ __forceinline__ void warpgroup_sync(int name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}

// Two warpgroups that take turns: one waits at `name` until the other has arrived there.
__device__ __forceinline__ void turn_wait(int name) {
  asm volatile("bar.sync %0, 256;" ::"r"(name) : "memory");
}
__device__ __forceinline__ void turn_give(int name) {
  asm volatile("bar.arrive %0, 256;" ::"r"(name) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(
    uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(a),
               "r"(b),
               "r"(c),
               "r"(d)
               : "memory");
}

// The reverse, for sums of the same places.
__device__ __forceinline__ void load_matrices(uint32_t from, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

// An operand of wgmma in shared memory, in rows of 128 bytes that are swizzled as the copy engine
// does. Blocks of 8 rows are 1024 bytes apart; `leading` is the distance of pieces of 64 columns
// (used by operands whose contraction runs down the rows).
__device__ __forceinline__ uint64_t operand_of(uint32_t at, uint32_t leading) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | (static_cast<uint64_t>(leading >> 4) << 16) |
         ((at & 0x3ffff) >> 4);
}
__device__ __forceinline__ void products_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from reading sums before this point.
template <int N>
__device__ __forceinline__ void pin(float (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// sums[64, N] = a[64, 16] b[16, N] (+ sums when `add`), bf16 in, f32 sums. kADown, kBDown: the
// contraction runs down the rows of that operand's tile. Thread t of the warpgroup has, for each
// eight columns j: sums[4 j + {0, 1}] of row 16 (t / 32) + t % 32 / 4 and columns 8 j + 2 (t % 4) +
// {0, 1}, and sums[4 j + {2, 3}] of the row eight below.
// clang-format off
#define VITRINE_F8(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), \
                      "+f"(sums[i + 4]), "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define VITRINE_F64(i) VITRINE_F8(i), VITRINE_F8(i + 8), VITRINE_F8(i + 16), VITRINE_F8(i + 24), \
                       VITRINE_F8(i + 32), VITRINE_F8(i + 40), VITRINE_F8(i + 48), VITRINE_F8(i + 56)
#define VITRINE_NAMES_64 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48," \
  "%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define VITRINE_NAMES_96 VITRINE_NAMES_64 "," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86," \
  "%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define VITRINE_NAMES_128 VITRINE_NAMES_96 "," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114," \
  "%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define VITRINE_PRODUCT(shape, names, a_name, b_name, add_name, down_names) \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " add_name ", 0;\n" \
  "wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" names "}, " a_name ", " b_name \
  ", p, 1, 1, " down_names ";\n}"
// clang-format on
template <bool kADown, bool kBDown>
__device__ __forceinline__ void product(float (&sums)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(VITRINE_PRODUCT("m64n128k16", VITRINE_NAMES_64, "%64", "%65", "%66", "%67, %68")
               : VITRINE_F64(0)
               : "l"(a), "l"(b), "r"(add), "n"(kADown ? 1 : 0), "n"(kBDown ? 1 : 0));
}
template <bool kADown, bool kBDown>
__device__ __forceinline__ void product(float (&sums)[96], uint64_t a, uint64_t b, int add) {
  asm volatile(VITRINE_PRODUCT("m64n192k16", VITRINE_NAMES_96, "%96", "%97", "%98", "%99, %100")
               : VITRINE_F64(0), VITRINE_F8(64), VITRINE_F8(72), VITRINE_F8(80), VITRINE_F8(88)
               : "l"(a), "l"(b), "r"(add), "n"(kADown ? 1 : 0), "n"(kBDown ? 1 : 0));
}
template <bool kADown, bool kBDown>
__device__ __forceinline__ void product(float (&sums)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      VITRINE_PRODUCT("m64n256k16", VITRINE_NAMES_128, "%128", "%129", "%130", "%131, %132")
      : VITRINE_F64(0), VITRINE_F64(64)
      : "l"(a), "l"(b), "r"(add), "n"(kADown ? 1 : 0), "n"(kBDown ? 1 : 0));
}

#endif  // VITRINE_WGMMA

}  // namespace vitrine::gpu::hopper
