// embedding: rows of a table by id, and the sums of gradients by id.
//
// Forward bytes: 2 storage sizes an output element; [16384, 1536] bf16 is 101 MB, 24 us at
// 4.17 TB/s. Backward: dy once, the touched rows of the table's gradient once (twice where added
// to), and where it is written over a clear of the whole table: 151936 x 1536 f32 is 0.93 GB, 0.3
// ms, most of the time. Ids are sorted with their places (embedding_sort.cu), so that the rows of
// one id are neighbours and are added in the order of their places, without atomics. Runs of one id
// can be long (padding), so the sorted list is cut into chunks: a run inside a chunk is finished
// there, the ends of runs across chunks are left in scratch and joined in order after.
#include "gpu/fault.h"
#include "gpu/following.cuh"
#include "ops/gpu/embedding_sort.h"
#include "ops/gpu/rows.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;
constexpr int kChunk = 16;  // sorted places a block

// The id, or 0 with a note of the first fault.
__device__ __forceinline__ int32_t
checked(int32_t id, int64_t place, int64_t vocabulary, Fault* fault, int32_t operation) {
  if (id >= 0 && id < vocabulary) return id;
  auto* limit = reinterpret_cast<unsigned long long*>(&fault->limit);
  if (atomicCAS(limit, 0ull, static_cast<unsigned long long>(vocabulary)) == 0ull) {
    fault->place = place;
    fault->value = id;
    fault->operation = operation;
  }
  return 0;
}

template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) gather_kernel(const int32_t* ids,
                                                          const T* table,
                                                          T* y,
                                                          int64_t vectors,
                                                          const Divisor row_vectors,
                                                          int64_t vocabulary,
                                                          Fault* fault,
                                                          int32_t operation) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads * kAtOnce) + threadIdx.x;
  int64_t from[kAtOnce];
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads >= vectors) continue;
    int64_t row, column;
    divide(i + u * kThreads, row_vectors, row, column);
    from[u] = checked(ids[row], row, vocabulary, fault, operation) * row_vectors.value + column;
  }
  Vec<T, kN> value[kAtOnce];
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads < vectors) value[u] = load<kN>(table + from[u] * kN);
  }
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads < vectors) store(y + (i + u * kThreads) * kN, value[u]);
  }
}

// A run continues from sorted place i - 1 to i.
__device__ __forceinline__ bool joined(const uint32_t* keys, int64_t i, int64_t count) {
  return i > 0 && i < count && keys[i - 1] == keys[i];
}

// Grid [chunks, columns / (blockDim kN)]. ends[chunk, 2, width]: the sum of a run that began in an
// earlier chunk (0), of one that began here and goes on (1).
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) chunk_sums_kernel(const uint32_t* keys,
                                                              const uint32_t* places,
                                                              const T* dy,
                                                              GradientTo<T> dtable,
                                                              Wide<T>* ends,
                                                              int64_t count,
                                                              int64_t width) {
  using W = Wide<T>;
  wait_for_previous();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kN;
  if (column >= width) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int64_t end = begin + kChunk < count ? begin + kChunk : count;
  bool from_before = joined(keys, begin, count);
  W sum[kN] = {};
  Vec<T, kN> row[kChunk];
#pragma unroll
  for (int u = 0; u < kChunk; ++u) {
    if (begin + u < end) row[u] = load_once<kN>(dy + places[begin + u] * width + column);
  }
#pragma unroll
  for (int u = 0; u < kChunk; ++u) {
    const int64_t at = begin + u;
    if (at >= end) continue;
    stay_packed(row[u]);
#pragma unroll
    for (int j = 0; j < kN; ++j) sum[j] += to_wide(row[u].v[j]);
    const bool goes_on = joined(keys, at + 1, count);
    if (goes_on && at + 1 < end) continue;
    if (from_before || goes_on) {
      W* to =
          ends + (static_cast<int64_t>(blockIdx.x) * 2 + (from_before ? 0 : 1)) * width + column;
#pragma unroll
      for (int j = 0; j < kN; ++j) to[j] = sum[j];
    } else {
      dtable.put(keys[at] * width + column, sum);
    }
    from_before = false;
#pragma unroll
    for (int j = 0; j < kN; ++j) sum[j] = 0;
  }
}

// Finishes runs that begin in one chunk and end in another, one block for each chunk where one
// begins.
template <typename T>
__global__ void __launch_bounds__(kThreads) join_kernel(
    const uint32_t* keys, const Wide<T>* ends, GradientTo<T> dtable, int64_t count, int64_t width) {
  wait_for_previous();
  const int64_t chunk = blockIdx.x, last = (chunk + 1) * kChunk - 1;
  if (!joined(keys, last + 1, count)) return;
  // The run of the last place must have begun in this chunk.
  if (keys[chunk * kChunk] == keys[last] && joined(keys, chunk * kChunk, count)) return;
  int64_t until = chunk + 1;  // the chunk where the run ends
  while (keys[min((until + 1) * kChunk, count) - 1] == keys[last] &&
         joined(keys, (until + 1) * kChunk, count)) {
    ++until;
  }
  for (int64_t column = threadIdx.x; column < width; column += kThreads) {
    Wide<T> sum[1] = {ends[(chunk * 2 + 1) * width + column]};
#pragma unroll 8
    for (int64_t c = chunk + 1; c <= until; ++c) sum[0] += ends[c * 2 * width + column];
    dtable.put(keys[last] * width + column, sum);
  }
}

template <typename T, int kN>
void sum_runs(const uint32_t* keys,
              const uint32_t* places,
              const TensorView& dy,
              const GradView& dtable,
              Wide<T>* ends,
              int64_t count,
              int64_t width) {
  const auto chunks = static_cast<unsigned>((count + kChunk - 1) / kChunk);
  const int64_t vectors = width / kN;
  const int threads = static_cast<int>(
      vectors >= kThreads ? kThreads : (vectors + VITRINE_WARP - 1) / VITRINE_WARP * VITRINE_WARP);
  const GradientTo<T> to = gradient_to<T>(dtable, dy.dtype, "embedding");
  launch_following("embedding backward",
                   chunk_sums_kernel<T, kN>,
                   dim3(chunks, static_cast<unsigned>((vectors + threads - 1) / threads)),
                   static_cast<unsigned>(threads),
                   keys,
                   places,
                   dy.as<const T>(),
                   to,
                   ends,
                   count,
                   width);
  if (chunks == 1) return;
  launch_following("embedding backward's joins",
                   join_kernel<T>,
                   chunks - 1,
                   kThreads,
                   keys,
                   ends,
                   to,
                   count,
                   width);
}

void embedding_forward(const OpCall& call) {
  const TensorView ids = call.in[0], table = call.in[1], y = call.out[0];
  if (y.elements() == 0) return;
  const int64_t width = table.shape[1];
  dispatch_float(table.dtype, "embedding", [&]<typename T>() {
    const auto launch = [&]<int kN>() {
      const int64_t vectors = y.elements() / kN;
      constexpr int64_t kBlock = kThreads * kAtOnce;
      gather_kernel<T, kN>
          <<<static_cast<unsigned>((vectors + kBlock - 1) / kBlock), kThreads, 0, stream()>>>(
              ids.as<const int32_t>(),
              table.as<const T>(),
              y.as<T>(),
              vectors,
              width / kN,
              table.shape[0],
              fault_slot(),
              fault_operation("embedding"));
      VITRINE_GPU_LAUNCHED("embedding");
    };
    constexpr int kN = 16 / sizeof(T);
    if (width % kN == 0 && aligned_to(16, {table.as<const T>(), y.as<const T>()})) {
      launch.template operator()<kN>();
    } else {
      launch.template operator()<1>();
    }
  });
}

void embedding_backward(const OpCall& call,
                        std::span<const TensorView> dout,
                        std::span<const GradView> din) {
  const GradView dtable = operand(din, 1);
  if (!dtable) return;
  const TensorView ids = call.in[0], dy = dout[0];
  const int64_t count = ids.elements(), vocabulary = dtable.view.shape[0];
  const int64_t width = dtable.view.shape[1];
  if (count == 0 || width == 0) return clear_gradient(dtable);
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  const size_t wide_bytes = dy.dtype == DType::kF64 ? 8 : 4;
  const size_t sort_bytes = sorted_ids_scratch(count, vocabulary);
  auto* scratch = static_cast<std::byte*>(
      workspace(sort_bytes + static_cast<size_t>(chunks * 2 * width) * wide_bytes));
  const SortedIds sorted = sort_ids(ids.as<const int32_t>(), count, vocabulary, scratch, dtable);
  dispatch_float(dy.dtype, "embedding", [&]<typename T>() {
    constexpr int kN = 16 / sizeof(T);
    auto* ends = reinterpret_cast<Wide<T>*>(scratch + sort_bytes);
    if (width % kN == 0 && aligned_to(16, {dy.as<const T>(), dtable.view.as<const T>()})) {
      sum_runs<T, kN>(sorted.keys, sorted.places, dy, dtable, ends, count, width);
    } else {
      sum_runs<T, 1>(sorted.keys, sorted.places, dy, dtable, ends, count, width);
    }
  });
}

}  // namespace

void add_embedding_rows(Backend& backend) {
  backend.add("embedding", {embedding_forward, when_wanted<embedding_backward>});
}

}  // namespace vitrine::gpu
