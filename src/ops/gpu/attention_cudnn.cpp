// Attention as cuDNN's operation graphs on strided views of packed heads; nothing is transposed.
// Floor of causal forward at [T 4096, d 128] on H200: 2 T T d H operations at 0.64 PFLOP/s;
// backward 2.5 times as many at 0.54.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "core/log.h"
#include "gpu/capture_graph.h"
#include "gpu/runtime.h"
#include "ops/gpu/attention.h"
#include "ops/gpu/columns.h"
#include "ops/gpu/cudnn_graph.h"
#include "ops/gpu/precision.h"

namespace vitrine::gpu {
namespace {

// cuDNN works in tiles of 64 or 128 rows: shorter sequences fill own kernels better.
constexpr int64_t kShortest = 64;
// Until 9.15 its backward reads past the end of other lengths.
constexpr size_t kFirstOfAnyLength = 91501;

// One batch dimension is what cuDNN has. Where both outer and inner dimensions are there, each
// outer index is a call.
struct Batch {
  int64_t calls = 1, count = 1;
  int64_t rows_to_next = 0;      // rows between elements of the batch
  int64_t rows_to_position = 0;  // between positions
  int64_t rows_to_call = 0;      // between calls

  explicit Batch(const AttentionShape& s) {
    if (s.inner == 1) {
      count = s.outer;
      rows_to_next = s.length;
      rows_to_position = 1;
    } else {
      calls = s.outer;
      count = s.inner;
      rows_to_next = 1;
      rows_to_position = s.inner;
      rows_to_call = s.inner * s.length;
    }
  }
};

// Numbers of the graph's tensors.
struct Tensors {
  int64_t q, k, v, out, lse, scale, infinity, one, dout, dq, dk, dv, row_sum, dq_sum;
};
struct Built {
  Tensors tensors{};
  CudnnPlan plan;
};

cudnnDataType_t type_of(DType dtype) {
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

class Builder {
 public:
  Builder(const AttentionShape& s, DType dtype)
      : s_(s),
        batch_(s),
        io_(type_of(dtype)),
        b_(batch_.count),
        h_(s.heads),
        g_(s.kv_heads),
        l_(s.length),
        d_(s.head_dim) {}

  Built forward() {
    inputs(false);
    t_.out = view(h_, s_.out_width());
    t_.lse = graph_.tensor(kFloat, {b_, h_, l_, 1}, {h_ * l_, l_, 1, 1});
    const int64_t score = masked(scaled_scores());
    const int64_t highest = row();
    graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, score, highest);
    const int64_t lowered = square(), exponential = square(), sum = row(), logarithm = row();
    graph_.pointwise(CUDNN_POINTWISE_SUB, score, highest, lowered);
    graph_.pointwise(CUDNN_POINTWISE_EXP, lowered, exponential);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
    graph_.pointwise(CUDNN_POINTWISE_LOG, sum, logarithm);
    graph_.pointwise(CUDNN_POINTWISE_ADD, highest, logarithm, t_.lse);
    const int64_t p = graph_.hidden(io_, {b_, h_, l_, l_});
    graph_.pointwise(CUDNN_POINTWISE_DIV, exponential, sum, p);
    graph_.matmul(p, t_.v, t_.out);
    return {t_, graph_.plan()};
  }

  Built backward(bool repeatable) {
    inputs(true);
    t_.out = view(h_, s_.out_width());
    t_.dout = view(h_, s_.out_width());
    t_.lse = graph_.tensor(kFloat, {b_, h_, l_, 1}, {h_ * l_, l_, 1, 1});
    t_.dq = view(h_, s_.qkv_width());
    t_.dk = view(g_, s_.qkv_width());
    t_.dv = view(g_, s_.qkv_width());
    t_.one = graph_.scalar();
    row_sums();
    const int64_t p = probabilities();
    sum_over_heads(turned(p), t_.dout, t_.dv);
    const int64_t ds = score_gradient(p);
    sum_over_heads(turned(ds), t_.q, t_.dk);
    const int64_t k = graph_.hidden(io_, {b_, g_, l_, d_}, strides(s_.qkv_width()));
    graph_.reshape(t_.k, k);
    if (repeatable) {
      graph_.matmul(ds, k, t_.dq);
    } else {
      t_.dq_sum = graph_.tensor(kFloat, {b_, h_, l_, d_}, {h_ * l_ * d_, l_ * d_, d_, 1});
      graph_.matmul(ds, k, t_.dq_sum);
      graph_.pointwise(CUDNN_POINTWISE_IDENTITY, t_.dq_sum, t_.dq);
    }
    return {t_, graph_.plan()};
  }

 private:
  static constexpr cudnnDataType_t kFloat = CUDNN_DATA_FLOAT;

  CudnnDims strides(int64_t width) const {
    return {batch_.rows_to_next * width, d_, batch_.rows_to_position * width, 1};
  }
  // [B, heads, L, d] of a packed tensor, and the same with rows and columns changed.
  int64_t view(int64_t heads, int64_t width) {
    return graph_.tensor(io_, {b_, heads, l_, d_}, strides(width));
  }
  int64_t turned_view(int64_t heads, int64_t width) {
    const CudnnDims s = strides(width);
    return graph_.tensor(io_, {b_, heads, d_, l_}, {s[0], s[1], s[3], s[2]});
  }
  int64_t square() { return graph_.hidden(kFloat, {b_, h_, l_, l_}); }
  int64_t row() { return graph_.hidden(kFloat, {b_, h_, l_, 1}); }

  // Keys are given turned, as the second factor of q kᵀ; values too where dout vᵀ is made.
  void inputs(bool backward) {
    t_.q = view(h_, s_.qkv_width());
    t_.k = turned_view(g_, s_.qkv_width());
    t_.v = backward ? turned_view(g_, s_.qkv_width()) : view(g_, s_.qkv_width());
    t_.scale = graph_.scalar();
    if (s_.causal) t_.infinity = graph_.scalar();
  }

  int64_t scaled_scores() {
    const int64_t product = square(), scaled = square();
    graph_.matmul(t_.q, t_.k, product);
    graph_.pointwise(CUDNN_POINTWISE_MUL, product, t_.scale, scaled);
    return scaled;
  }

  // Minus infinity where the column is after the row.
  int64_t masked(int64_t score) {
    if (!s_.causal) return score;
    const CudnnDims dims{b_, h_, l_, l_};
    const int64_t row_index = graph_.hidden(CUDNN_DATA_INT32, dims);
    const int64_t column_index = graph_.hidden(CUDNN_DATA_INT32, dims);
    const int64_t seen = graph_.hidden(CUDNN_DATA_BOOLEAN, dims);
    const int64_t result = square();
    graph_.index(score, 2, row_index);
    graph_.index(score, 3, column_index);
    graph_.compare_ge(row_index, column_index, seen);
    graph_.select(score, t_.infinity, seen, result);
    return result;
  }

  // sum over d of dout * out, kept in memory between cuDNN's kernels.
  void row_sums() {
    const int64_t product = graph_.hidden(kFloat, {b_, h_, l_, d_}), sum = row();
    t_.row_sum = graph_.tensor(kFloat, {b_, h_, l_, 1}, {h_ * l_, l_, 1, 1});
    graph_.pointwise(CUDNN_POINTWISE_MUL, t_.dout, t_.out, product);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    graph_.pointwise(CUDNN_POINTWISE_MUL, sum, t_.one, t_.row_sum);
  }

  int64_t probabilities() {
    const int64_t scaled = scaled_scores(), lowered = square();
    graph_.pointwise(CUDNN_POINTWISE_SUB, scaled, t_.lse, lowered);
    const int64_t score = masked(lowered), p = square();
    graph_.pointwise(CUDNN_POINTWISE_EXP, score, p);
    return p;
  }

  // scale * p * (dout vᵀ - row sum)
  int64_t score_gradient(int64_t p) {
    const int64_t dp = square(), lowered = square(), product = square(), ds = square();
    graph_.matmul(t_.dout, t_.v, dp);
    graph_.pointwise(CUDNN_POINTWISE_SUB, dp, t_.row_sum, lowered);
    graph_.pointwise(CUDNN_POINTWISE_MUL, lowered, p, product);
    graph_.pointwise(CUDNN_POINTWISE_MUL, product, t_.scale, ds);
    return ds;
  }

  int64_t turned(int64_t x) {
    const int64_t y = graph_.hidden(io_, {b_, h_, l_, l_}, {h_ * l_ * l_, l_ * l_, 1, l_});
    graph_.reshape(x, y);
    return y;
  }

  // gradient[B, G, L, d] = a b, summed over the query heads that share a key head.
  void sum_over_heads(int64_t a, int64_t b, int64_t gradient) {
    if (h_ == g_) return graph_.matmul(a, b, gradient);
    const int64_t all = graph_.hidden(io_, {b_, h_, l_, d_});
    graph_.matmul(a, b, all);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, all, gradient);
  }

  AttentionShape s_;
  Batch batch_;
  cudnnDataType_t io_;
  int64_t b_, h_, g_, l_, d_;
  CudnnGraph graph_;
  Tensors t_{};
};

using Key = std::array<int64_t, 12>;

Key key_of(const AttentionShape& s, DType dtype, bool backward, bool repeatable) {
  return {limits().device,
          s.inner == 1 ? s.outer : 1,  // with an inner dimension, the number of calls
          s.length,
          s.inner,
          s.heads,
          s.kv_heads,
          s.head_dim,
          s.causal,
          static_cast<int64_t>(dtype),
          backward,
          repeatable,
          0};
}

// Own kernels take over, which are slower on long sequences.
void note_refusal(const std::string& reason) {
  log_warning("attention runs on own kernels where cuDNN would be faster: " + reason);
}

bool aligned(std::initializer_list<const void*> pointers) {
  uintptr_t all = 0;
  for (const void* pointer : pointers) all |= reinterpret_cast<uintptr_t>(pointer);
  return all % 16 == 0;
}

bool suited(const AttentionShape& s, DType dtype) {
  const bool narrow = dtype == DType::kBF16 || dtype == DType::kF16;
  const bool mask = !s.causal || s.causal_block == 1;
  // Many short calls would be worse than one kernel of our own.
  const int64_t shortest = s.outer > 1 && s.inner > 1 ? 4 * kShortest : kShortest;
  // cuDNN expects 16-byte alignment of what each call is given.
  const bool apart = s.outer == 1 || s.inner == 1 || s.inner * s.heads * s.length % 4 == 0;
  return narrow && mask && apart && s.head_dim % 8 == 0 && s.head_dim <= 128 &&
         s.length >= shortest && limits().major >= 8;
}

// Plans of this thread, which belong to its handle; null: cuDNN refused.
std::map<Key, std::unique_ptr<Built>>& plans() {
  static thread_local auto* all = new std::map<Key, std::unique_ptr<Built>>;
  return *all;
}

template <typename Build>
Built* plan_for(const Key& key, Build&& build) {
  const auto it = plans().find(key);
  if (it != plans().end()) return it->second.get();
  not_capturable("attention whose plan is not made yet");
  std::unique_ptr<Built>& made = plans()[key];
  try {
    made = std::make_unique<Built>(build());
  } catch (const CudnnFailure& failure) {
    note_refusal(failure.text);
  }
  return made.get();
}

// A plan that failed is not tried again; unless it was to be captured, which says nothing about the
// plan.
template <typename Run>
bool attempt(const Key& key, Run&& run) {
  try {
    run();
    return true;
  } catch (const CudnnFailure& failure) {
    not_capturable(failure.text.c_str());
    note_refusal(failure.text);
    plans()[key] = nullptr;
    return false;
  }
}

size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

char* moved(const void* base, int64_t elements, int64_t size) {
  return const_cast<char*>(static_cast<const char*>(base)) + elements * size;
}

// Operands by value, which must live until the launch.
struct Scalars {
  float scale, infinity = -std::numeric_limits<float>::infinity(), one = 1;
  explicit Scalars(const AttentionShape& s)
      : scale(1 / std::sqrt(static_cast<float>(s.head_dim))) {}
};

// Packed operands of one call: elements from the base to queries, keys, values.
struct Places {
  int64_t qkv, out, lse, keys, values;
  Places(const AttentionShape& s, const Batch& batch, int64_t call)
      : qkv(call * batch.rows_to_call * s.qkv_width()),
        out(call * batch.rows_to_call * s.out_width()),
        lse(call * batch.count * s.heads * s.length),
        keys(qkv + s.out_width()),
        values(keys + int64_t{s.kv_heads} * s.head_dim) {}
};

void run_backward(const AttentionBackward& call, const Built& built, void* dqkv, char* scratch) {
  const AttentionShape& s = call.shape;
  const Batch batch(s);
  const Tensors& t = built.tensors;
  Scalars scalars(s);
  const size_t rows = static_cast<size_t>(batch.count * s.heads * s.length);
  char* row_sum = scratch;
  char* dq_sum = row_sum + rounded(rows * 4);
  char* workspace = dq_sum + (t.dq_sum ? rounded(rows * static_cast<size_t>(s.head_dim) * 4) : 0);
  for (int64_t i = 0; i < batch.calls; ++i) {
    const Places at(s, batch, i);
    std::vector<std::pair<int64_t, void*>> operands{{t.q, moved(call.qkv, at.qkv, 2)},
                                                    {t.k, moved(call.qkv, at.keys, 2)},
                                                    {t.v, moved(call.qkv, at.values, 2)},
                                                    {t.out, moved(call.out, at.out, 2)},
                                                    {t.dout, moved(call.dout, at.out, 2)},
                                                    {t.lse, moved(call.lse, at.lse, 4)},
                                                    {t.dq, moved(dqkv, at.qkv, 2)},
                                                    {t.dk, moved(dqkv, at.keys, 2)},
                                                    {t.dv, moved(dqkv, at.values, 2)},
                                                    {t.row_sum, row_sum},
                                                    {t.scale, &scalars.scale},
                                                    {t.one, &scalars.one}};
    if (t.dq_sum) operands.emplace_back(t.dq_sum, dq_sum);
    if (t.infinity) operands.emplace_back(t.infinity, &scalars.infinity);
    built.plan.run(operands, workspace);
  }
}

}  // namespace

bool cudnn_attention(const AttentionForward& call) {
  const AttentionShape& s = call.shape;
  if (!suited(s, call.dtype) || !aligned({call.qkv, call.out, call.lse})) return false;
  const Key key = key_of(s, call.dtype, false, false);
  const Built* built = plan_for(key, [&] { return Builder(s, call.dtype).forward(); });
  if (!built) return false;
  return attempt(key, [&] {
    void* scratch = workspace(built->plan.workspace_bytes());
    const Batch batch(s);
    const Tensors& t = built->tensors;
    Scalars scalars(s);
    for (int64_t i = 0; i < batch.calls; ++i) {
      const Places at(s, batch, i);
      std::vector<std::pair<int64_t, void*>> operands{{t.q, moved(call.qkv, at.qkv, 2)},
                                                      {t.k, moved(call.qkv, at.keys, 2)},
                                                      {t.v, moved(call.qkv, at.values, 2)},
                                                      {t.out, moved(call.out, at.out, 2)},
                                                      {t.lse, moved(call.lse, at.lse, 4)},
                                                      {t.scale, &scalars.scale}};
      if (t.infinity) operands.emplace_back(t.infinity, &scalars.infinity);
      built->plan.run(operands, scratch);
    }
  });
}

bool cudnn_attention(const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  const bool any_length = cudnnGetVersion() >= kFirstOfAnyLength || s.length % 128 == 0;
  if (!any_length || !suited(s, call.dtype) ||
      !aligned({call.qkv, call.out, call.dout, call.lse, call.dqkv.view.data})) {
    return false;
  }
  const bool repeatable = deterministic();
  const Key key = key_of(s, call.dtype, true, repeatable);
  const Built* built = plan_for(key, [&] { return Builder(s, call.dtype).backward(repeatable); });
  if (!built) return false;
  const Batch batch(s);
  const size_t rows = static_cast<size_t>(batch.count * s.heads * s.length);
  const size_t sums =
      rounded(rows * 4) + (repeatable ? 0 : rounded(rows * static_cast<size_t>(s.head_dim) * 4));
  // cuDNN writes over, in the operands' dtype: other gradients are made beside and added.
  const bool beside = call.dqkv.accumulate || call.dqkv.view.dtype != call.dtype;
  const size_t copy = beside ? rounded(static_cast<size_t>(call.dqkv.view.elements()) * 2) : 0;
  return attempt(key, [&] {
    char* scratch = static_cast<char*>(workspace(copy + sums + built->plan.workspace_bytes()));
    run_backward(call, *built, beside ? scratch : call.dqkv.view.data, scratch + copy);
    if (beside) store_scaled(call.dqkv, call.dtype, scratch, nullptr);
  });
}

}  // namespace vitrine::gpu
