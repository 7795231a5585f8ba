// Sorting of ids, stable. Up to 16384 of them fit into one block: five passes over 18 bits in
// shared memory, about 25 us, while the other blocks clear the rows of the table's gradient that no
// id names (151936 x 1536 bf16: 467 MB less 50, 100 us at 4.17 TB/s). More are sorted by the
// device-wide sort after the clear.
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "ops/gpu/elementwise.cuh"
#include "ops/gpu/embedding_sort.h"
#include "ops/gpu/gradient.h"
#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;  // of blocks that only name the keys
constexpr int kSortThreads = 1024;
constexpr int kMostItems = 16;  // of a thread of the one block

// Ids outside were noted in forward; here they must only not write outside.
__device__ __forceinline__ uint32_t key_of(int32_t id, int64_t vocabulary) {
  return id >= 0 && id < vocabulary ? static_cast<uint32_t>(id) : 0;
}

__global__ void keys_kernel(
    const int32_t* ids, int64_t count, int64_t vocabulary, uint32_t* keys, uint32_t* places) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  keys[i] = key_of(ids[i], vocabulary);
  places[i] = static_cast<uint32_t>(i);
}

// Block 0 sorts, the others clear `pieces` of 16 bytes, `row` of them a row of the table; only rows
// that no id names where `skip`, as the others are written later.
template <int kItems>
__global__ void __launch_bounds__(kSortThreads) sort_and_clear_kernel(const int32_t* ids,
                                                                      int count,
                                                                      int64_t vocabulary,
                                                                      int bits,
                                                                      uint32_t* keys,
                                                                      uint32_t* places,
                                                                      uint4* table,
                                                                      int64_t pieces,
                                                                      const Divisor row,
                                                                      bool skip) {
  using Sort = cub::BlockRadixSort<uint32_t, kSortThreads, kItems, uint32_t>;
  extern __shared__ uint4 bytes[];
  if (blockIdx.x > 0) {
    auto* named = reinterpret_cast<uint32_t*>(bytes);  // a bit a row
    if (skip) {
      for (int i = threadIdx.x; i < (vocabulary + 31) / 32; i += kSortThreads) named[i] = 0;
      __syncthreads();
      for (int i = threadIdx.x; i < count; i += kSortThreads) {
        const uint32_t key = key_of(ids[i], vocabulary);
        atomicOr(named + key / 32, 1u << key % 32);
      }
      __syncthreads();
    }
    const int64_t stride = static_cast<int64_t>(gridDim.x - 1) * kSortThreads;
#pragma unroll 4
    for (int64_t i = static_cast<int64_t>(blockIdx.x - 1) * kSortThreads + threadIdx.x; i < pieces;
         i += stride) {
      if (skip) {
        const auto key = static_cast<uint32_t>(quotient(i, row));
        if ((named[key / 32] >> key % 32 & 1) != 0) continue;
      }
      __stcs(table + i, uint4{});
    }
    return;
  }
  uint32_t own[kItems], place[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = static_cast<int>(threadIdx.x) * kItems + k;
    // What fills up comes last: no key has more bits set, and equal ones stand before it.
    own[k] = i < count ? key_of(ids[i], vocabulary) : ~0u;
    place[k] = static_cast<uint32_t>(i);
  }
  auto& shared = *reinterpret_cast<typename Sort::TempStorage*>(bytes);
  Sort(shared).SortBlockedToStriped(own, place, 0, bits);
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * kSortThreads;
    if (i >= count) continue;
    keys[i] = own[k];
    places[i] = place[k];
  }
}

template <int kItems>
void sort_in_one_block(const int32_t* ids,
                       int64_t count,
                       int64_t vocabulary,
                       int bits,
                       uint32_t* keys,
                       uint32_t* places,
                       const TensorView& table) {
  using Sort = cub::BlockRadixSort<uint32_t, kSortThreads, kItems, uint32_t>;
  const auto kernel = sort_and_clear_kernel<kItems>;
  constexpr size_t kBytes = sizeof(typename Sort::TempStorage);
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  const int64_t pieces = static_cast<int64_t>(table.bytes() / 16);
  const bool skip = pieces > 0 && pieces % vocabulary == 0 && (vocabulary + 31) / 32 * 4 <= kBytes;
  const unsigned clearing = pieces == 0 ? 0 : blocks_for(pieces, kSortThreads, 2);
  kernel<<<1 + clearing, kSortThreads, kBytes, stream()>>>(ids,
                                                           static_cast<int>(count),
                                                           vocabulary,
                                                           bits,
                                                           keys,
                                                           places,
                                                           table.as<uint4>(),
                                                           pieces,
                                                           skip ? pieces / vocabulary : 1,
                                                           skip);
  VITRINE_GPU_LAUNCHED("embedding's sort");
}

int bits_of(int64_t vocabulary) {
  int bits = 1;
  while (bits < 32 && (int64_t{1} << bits) < vocabulary) ++bits;
  return bits;
}

size_t list_bytes(int64_t count) {
  return (static_cast<size_t>(count) * sizeof(uint32_t) + 255) / 256 * 256;
}

bool fits_one_block(int64_t count) {
  return count <= int64_t{kSortThreads} * kMostItems && limits().shared_bytes_a_block >= 96 * 1024;
}

// With null lists only `bytes` is answered.
void device_sort(void* temporary,
                 size_t& bytes,
                 uint32_t* keys,
                 uint32_t* sorted_keys,
                 uint32_t* places,
                 uint32_t* sorted_places,
                 int64_t count,
                 int bits) {
  VITRINE_GPU_CHECK(cub::DeviceRadixSort::SortPairs(temporary,
                                                    bytes,
                                                    keys,
                                                    sorted_keys,
                                                    places,
                                                    sorted_places,
                                                    static_cast<int>(count),
                                                    0,
                                                    bits,
                                                    stream()));
}

size_t device_sort_bytes(int64_t count, int bits) {
  size_t bytes = 0;
  device_sort(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, count, bits);
  return (bytes + 255) / 256 * 256;
}

}  // namespace

size_t sorted_ids_scratch(int64_t count, int64_t vocabulary) {
  if (count > INT32_MAX) throw ShapeError("embedding: more than 2^31 ids in one call");
  if (fits_one_block(count)) return 2 * list_bytes(count);
  return 4 * list_bytes(count) + device_sort_bytes(count, bits_of(vocabulary));
}

SortedIds sort_ids(
    const int32_t* ids, int64_t count, int64_t vocabulary, void* scratch, const GradView& table) {
  const size_t list = list_bytes(count);
  const auto list_at = [&](size_t i) {
    return reinterpret_cast<uint32_t*>(static_cast<std::byte*>(scratch) + i * list);
  };
  const int bits = bits_of(vocabulary);
  const SortedIds sorted{list_at(0), list_at(1)};
  if (fits_one_block(count)) {
    const bool clear = table && !table.accumulate;
    const bool whole = table.view.bytes() % 16 == 0 && aligned_to(16, {table.view.data});
    if (clear && !whole) clear_gradient(table);
    const TensorView cleared = clear && whole ? table.view : TensorView{};
    const auto sort = [&]<int kItems>() {
      sort_in_one_block<kItems>(ids, count, vocabulary, bits, list_at(0), list_at(1), cleared);
    };
    count <= kSortThreads ? sort.template operator()<1>() : sort.template operator()<kMostItems>();
    return sorted;
  }
  clear_gradient(table);
  size_t bytes = device_sort_bytes(count, bits);
  keys_kernel<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream()>>>(
      ids, count, vocabulary, list_at(2), list_at(3));
  VITRINE_GPU_LAUNCHED("embedding keys");
  device_sort(list_at(4), bytes, list_at(2), list_at(0), list_at(3), list_at(1), count, bits);
  return sorted;
}

}  // namespace vitrine::gpu
