// Matrix products by oneDNN 2.6: the only file that sees its C++ interface (3.x has another).
#include "ops/cpu/fast/gemm.h"

#include <array>
#include <dnnl.hpp>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/format.h"
#include "core/parallel.h"
#include "ops/cpu/fast/scratch.h"

namespace vitrine::fast {
namespace {

Conversions conversions{};

// f32 goes by dnnl_sgemm: it needs no primitive and is as fast as cached matmul primitives with
// their own scratchpad. GFLOP/s of one Zen 5 core by its processor time, sgemm / matmul, m 2048:
//   y = x wᵀ   n 256 k 256 178 / 195   n 768 k 256 193 / 190   n 8192 k 256 176 / 160
//   dx = dy w  n 256 k 256 194 / 186   n 768 k 256 190 / 191   n 8192 k 256 153 / 128
//   dw = dyᵀ x n 256 k 256 180 / 188   n 768 k 256 176 / 178   n 8192 k 256 119 / 139
// bf16 primitives gave 320 to 400 on the same shapes.

struct Key {
  int64_t m, n, k, lda, ldb, ldc;
  bool ta, tb, accumulate, wide_out;
  auto operator<=>(const Key&) const = default;
};

struct Product {
  dnnl::matmul primitive;
  dnnl::memory::desc a, b, c;
};

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

// Null when this processor has no bf16 products.
std::unique_ptr<Product> make_bf16_product(const Key& key) {
  using dnnl::memory;
  const auto strides = [](int64_t stride, bool transposed) {
    return transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  };
  const auto narrow = memory::data_type::bf16, wide = memory::data_type::f32;
  try {
    auto product = std::make_unique<Product>();
    product->a = memory::desc({key.m, key.k}, narrow, strides(key.lda, key.ta));
    product->b = memory::desc({key.k, key.n}, narrow, strides(key.ldb, key.tb));
    product->c =
        memory::desc({key.m, key.n}, key.wide_out ? wide : narrow, strides(key.ldc, false));
    dnnl::primitive_attr attributes;
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc description(product->a, product->b, product->c);
    product->primitive =
        dnnl::matmul(dnnl::matmul::primitive_desc(description, attributes, engine()));
    return product;
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

// Primitives are made once a shape and kept, by each thread for itself: those that ranks in threads
// shared (scratchpad and number of OpenMP threads are the maker's) gave other sums now and then.
const Product* bf16_product(const Key& key) {
  thread_local std::map<Key, std::unique_ptr<Product>> products;
  auto found = products.find(key);
  if (found == products.end()) found = products.emplace(key, make_bf16_product(key)).first;
  return found->second.get();
}

bool bf16_gemm(
    int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const MatrixOut& c) {
  const Product* product = bf16_product({m,
                                         n,
                                         k,
                                         a.stride,
                                         b.stride,
                                         c.stride,
                                         a.transposed,
                                         b.transposed,
                                         c.accumulate,
                                         c.dtype == DType::kF32});
  if (!product) return false;
  thread_local dnnl::stream stream(engine());
  const dnnl::memory ma(product->a, engine(), const_cast<void*>(a.data));
  const dnnl::memory mb(product->b, engine(), const_cast<void*>(b.data));
  const dnnl::memory mc(product->c, engine(), c.data);
  product->primitive.execute(stream,
                             {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
  stream.wait();
  return true;
}

// The stored rows of an operand as compact f32.
Matrix widened(const Matrix& x, int64_t rows, int64_t columns, Scratch where) {
  if (x.dtype == DType::kF32) return x;
  if (x.transposed) std::swap(rows, columns);
  float* copy = scratch(where, rows * columns);
  parallel_for(rows, 1 + 65536 / (columns + 1), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      conversions.widen(x.dtype, x.data, r * x.stride, columns, copy + r * columns);
  });
  return {copy, DType::kF32, columns, x.transposed};
}

}  // namespace

void set_conversions(const Conversions& chosen) { conversions = chosen; }

void sgemm(bool transpose_a,
           bool transpose_b,
           int64_t m,
           int64_t n,
           int64_t k,
           float alpha,
           const float* a,
           int64_t lda,
           const float* b,
           int64_t ldb,
           float beta,
           float* c,
           int64_t ldc) {
  const auto status = dnnl_sgemm(transpose_a ? 'T' : 'N',
                                 transpose_b ? 'T' : 'N',
                                 m,
                                 n,
                                 k,
                                 alpha,
                                 a,
                                 lda,
                                 b,
                                 ldb,
                                 beta,
                                 c,
                                 ldc);
  if (status != dnnl_success) {
    throw DeviceError(format("oneDNN refused a product of %lld x %lld x %lld (status %d)",
                             static_cast<long long>(m),
                             static_cast<long long>(n),
                             static_cast<long long>(k),
                             static_cast<int>(status)));
  }
}

void gemm(int64_t m,
          int64_t n,
          int64_t k,
          const Matrix& a,
          const Matrix& b,
          const MatrixOut& c,
          float alpha) {
  if (m == 0 || n == 0) return;
  const bool native_out = c.dtype == DType::kF32 || c.dtype == DType::kBF16;
  if (a.dtype == DType::kBF16 && b.dtype == DType::kBF16 && alpha == 1 && native_out && k > 0 &&
      bf16_gemm(m, n, k, a, b, c))
    return;
  const Matrix wa = widened(a, m, k, Scratch::kGemmA), wb = widened(b, k, n, Scratch::kGemmB);
  const bool direct = c.dtype == DType::kF32;
  float* out = direct ? static_cast<float*>(c.data) : scratch(Scratch::kGemmC, m * n);
  const int64_t stride = direct ? c.stride : n;
  const float beta = direct && c.accumulate ? 1.0f : 0.0f;
  sgemm(wa.transposed,
        wb.transposed,
        m,
        n,
        k,
        alpha,
        static_cast<const float*>(wa.data),
        wa.stride,
        static_cast<const float*>(wb.data),
        wb.stride,
        beta,
        out,
        stride);
  if (direct) return;
  parallel_for(m, 1 + 65536 / n, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      conversions.narrow(c.dtype, c.data, r * c.stride, n, out + r * n, c.accumulate);
  });
}

}  // namespace vitrine::fast
