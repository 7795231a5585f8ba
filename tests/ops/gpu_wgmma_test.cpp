// Own products of Hopper GPUs in every variant: exact on small integers, in every layout and with
// every end, on any number of multiprocessors; near fp64 on normal values, with the same bits each
// time. Swiglu in the ends of products against the reference.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/philox.h"
#include "ops/gpu/wgmma_matmul.h"
#include "ops/gpu/wgmma_swiglu.h"
#include "ops/op.h"
#include "support/gpu_fixture.h"

namespace vitrine::test {
namespace {

using gpu::WgmmaVariant;

// Memory of the first GPU that holds values of one dtype.
class Array {
 public:
  Array(DType dtype, const std::vector<double>& values)
      : dtype_(dtype), count_(values.size()), data_(test::gpu().allocate(bytes())) {
    set(values);
  }
  ~Array() { test::gpu().release(data_, bytes()); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void set(const std::vector<double>& values) {
    std::vector<char> narrow(bytes());
    convert(dtype_, narrow.data(), DType::kF64, values.data(), static_cast<int64_t>(count_));
    test::gpu().upload(data_, narrow.data(), narrow.size());
  }
  std::vector<double> values() const {
    std::vector<char> narrow(bytes());
    test::gpu().download(narrow.data(), data_, narrow.size());
    std::vector<double> wide(count_);
    convert(DType::kF64, wide.data(), dtype_, narrow.data(), static_cast<int64_t>(count_));
    return wide;
  }
  void* data() const { return data_; }

 private:
  size_t bytes() const { return std::max<size_t>(count_ * dtype_bytes(dtype_), 256); }

  DType dtype_;
  size_t count_;
  void* data_;
};

std::vector<double> integers(int64_t count, uint64_t seed) {
  const Philox random(seed, stream_of("integers"));
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(random.below(3, i)) - 1;
  return values;
}

double in_dtype(DType dtype, double value) {
  char narrow[8];
  convert(dtype, narrow, DType::kF64, &value, 1);
  convert(DType::kF64, &value, dtype, narrow, 1);
  return value;
}

std::vector<double> normals(int64_t count, uint64_t seed, double deviation) {
  const Philox random(seed, stream_of("normals"));
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = in_dtype(DType::kBF16, deviation * random.normal(i));
  return values;
}

// y = x wᵀ, dx = dy w, dw = dyᵀ x.
enum class Kind { kForward, kInputGradient, kWeightGradient };

// Rows are eight elements longer than the matrix; what lies there must stay.
struct Case {
  Kind kind;
  int64_t m, n, k;
  DType d_dtype;
  bool accumulate, bias;

  static constexpr int64_t kMore = 8;
  bool a_down() const { return kind == Kind::kWeightGradient; }
  bool b_down() const { return kind != Kind::kForward; }
  int64_t a_stride() const { return (a_down() ? m : k) + kMore; }
  int64_t b_stride() const { return (b_down() ? n : k) + kMore; }
  int64_t d_stride() const { return n + kMore; }
  int64_t a_count() const { return a_stride() * (a_down() ? k : m); }
  int64_t b_count() const { return b_stride() * (b_down() ? k : n); }
  std::string label() const {
    return "kind " + std::to_string(static_cast<int>(kind)) + " m " + std::to_string(m) + " n " +
           std::to_string(n) + " k " + std::to_string(k) + " " + dtype_name(d_dtype) +
           (accumulate ? " added" : "") + (bias ? " bias" : "");
  }
};

class GpuWgmma : public GpuFixture {
 protected:
  void SetUp() override {
    GpuFixture::SetUp();
    if (IsSkipped()) return;
    const Array some(DType::kBF16, integers(64, 1));
    if (!gpu::wgmma_swiglu_fits({8, 8, 8, some.data(), some.data(), some.data(), some.data()}))
      GTEST_SKIP() << "not a GPU of compute capability 9.0";
    scratch_ = test::gpu().allocate(gpu::kGemmScratch);
  }
  void TearDown() override {
    if (scratch_) test::gpu().release(scratch_, gpu::kGemmScratch);
  }

  void expect_exact(const Case& c) {
    SCOPED_TRACE(c.label());
    const auto a = integers(c.a_count(), 1), b = integers(c.b_count(), 2);
    const auto bias = integers(c.n, 3), old = integers(c.m * c.d_stride(), 4);
    std::vector<double> expected = old;
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const auto at = static_cast<size_t>(i * c.d_stride() + j);
        double sum = (c.accumulate ? old[at] : 0) + (c.bias ? bias[static_cast<size_t>(j)] : 0);
        for (int64_t e = 0; e < c.k; ++e) {
          const int64_t a_at = c.a_down() ? e * c.a_stride() + i : i * c.a_stride() + e;
          const int64_t b_at = c.b_down() ? e * c.b_stride() + j : j * c.b_stride() + e;
          sum += a[static_cast<size_t>(a_at)] * b[static_cast<size_t>(b_at)];
        }
        expected[at] = in_dtype(c.d_dtype, sum);
      }
    }
    const Array on_a(DType::kBF16, a), on_b(DType::kBF16, b), on_bias(DType::kBF16, bias);
    Array d(c.d_dtype, old);
    gpu::Gemm gemm{.m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .dtype = DType::kBF16,
                   .a = {on_a.data(), c.a_stride(), c.a_down()},
                   .b = {on_b.data(), c.b_stride(), !c.b_down()},
                   .d = d.data(),
                   .d_dtype = c.d_dtype,
                   .d_stride = c.d_stride(),
                   .accumulate = c.accumulate,
                   .bias = c.bias ? on_bias.data() : nullptr};
    const auto variants = gpu::wgmma_variants(gemm);
    EXPECT_GE(variants.size(), 3u);
    for (const WgmmaVariant& variant : variants) {
      for (const int multiprocessors : {0, 6}) {
        d.set(old);
        gpu::wgmma_matmul(gemm, variant, d.data(), scratch_, multiprocessors);
        EXPECT_EQ(d.values(), expected)
            << variant.tile_columns << (variant.split ? " split" : "") << ' ' << multiprocessors;
      }
    }
  }

  void* scratch_ = nullptr;
};

TEST_F(GpuWgmma, ProductsOfSmallIntegersAreExact) {
  for (const Kind kind : {Kind::kForward, Kind::kInputGradient, Kind::kWeightGradient}) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      for (const bool more : {false, true}) {
        expect_exact({kind, 8, 8, 8, dtype, more, more});
        expect_exact({kind, 136, 264, 72, dtype, more, !more});
        expect_exact({kind, 520, 200, 1032, dtype, !more, more});
        expect_exact({kind, 264, 520, 512, dtype, !more, !more});
      }
    }
  }
  // Rows are not in eights where they are no one's contiguous dimension.
  expect_exact({Kind::kForward, 1, 264, 72, DType::kBF16, false, true});
  expect_exact({Kind::kInputGradient, 131, 72, 264, DType::kF32, true, false});
  // Much to write after little to add: a worker's tiles follow each other at once.
  expect_exact({Kind::kForward, 4096, 960, 8, DType::kBF16, false, false});
}

TEST_F(GpuWgmma, RefusesOperandsOf8Bits) {
  const Array any(DType::kBF16, std::vector<double>(256 * 256));
  gpu::Gemm gemm{.m = 256,
                 .n = 256,
                 .k = 256,
                 .dtype = DType::kBF16,
                 .a = {any.data(), 256},
                 .b = {any.data(), 256, true},
                 .d = any.data(),
                 .d_dtype = DType::kBF16,
                 .d_stride = 256};
  EXPECT_FALSE(gpu::wgmma_variants(gemm).empty());
  gemm.a.fp8 = Fp8::kE4M3;
  EXPECT_TRUE(gpu::wgmma_variants(gemm).empty());
  gemm.a.fp8 = Fp8::kNone, gemm.b.fp8 = Fp8::kE5M2;
  EXPECT_TRUE(gpu::wgmma_variants(gemm).empty());
}

TEST_F(GpuWgmma, NormalValuesAreNearFp64AndTheSameBitsEachTime) {
  const int64_t m = 768, n = 1544, k = 8192;
  const auto a = normals(k * m, 1, 1), b = normals(k * n, 2, 0.05);
  const Array on_a(DType::kBF16, a), on_b(DType::kBF16, b);
  Array d(DType::kF32, std::vector<double>(static_cast<size_t>(m * n)));
  const gpu::Gemm gemm{.m = m,
                       .n = n,
                       .k = k,
                       .dtype = DType::kBF16,
                       .a = {on_a.data(), m, true},
                       .b = {on_b.data(), n},
                       .d = d.data(),
                       .d_dtype = DType::kF32,
                       .d_stride = n};
  for (const WgmmaVariant& variant : gpu::wgmma_variants(gemm)) {
    SCOPED_TRACE(std::to_string(variant.tile_columns) + (variant.split ? " split" : ""));
    gpu::wgmma_matmul(gemm, variant, d.data(), scratch_);
    const auto first = d.values();
    for (int again = 0; again < 3; ++again) {
      gpu::wgmma_matmul(gemm, variant, d.data(), scratch_);
      EXPECT_EQ(d.values(), first);
    }
    for (int64_t sample = 0; sample < 200; ++sample) {
      const int64_t i = sample * 7919 % m, j = sample * 104729 % n;
      double sum = 0;
      for (int64_t e = 0; e < k; ++e)
        sum += a[static_cast<size_t>(e * m + i)] * b[static_cast<size_t>(e * n + j)];
      // Sums of size 4.5; tensor cores cut f32 off when they add, some 500 times here.
      EXPECT_NEAR(first[static_cast<size_t>(i * n + j)], sum, 1e-3);
    }
  }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Integers give exact products, so that only swiglu's own rounding differs from fp64's.
void expect_rounded(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(got[i] - expected[i]) / (std::abs(expected[i]) + 1e-3));
  }
  EXPECT_LT(worst, 1.0 / 255);  // half a unit of the last of 8 bits, and a little
}

TEST_F(GpuWgmma, SwigluInTheEndsOfItsProducts) {
  for (const auto& [m, k, f] : {std::array<int64_t, 3>{8, 8, 8},
                                {131, 136, 72},
                                {300, 72, 264},
                                {257, 200, 1000},
                                {513, 328, 1000}}) {
    SCOPED_TRACE(std::to_string(m) + " " + std::to_string(k) + " " + std::to_string(f));
    const auto x = integers(m * k, 1), w = integers(2 * f * k, 2), down = integers(k * f, 3);
    std::vector<double> gate_up(static_cast<size_t>(m * 2 * f)), h(static_cast<size_t>(m * f));
    std::vector<double> gradient(gate_up.size());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < f; ++j) {
        double gate = 0, up = 0, dh = 0;
        for (int64_t e = 0; e < k; ++e) {
          const double in = x[static_cast<size_t>(i * k + e)];
          gate += in * w[static_cast<size_t>(j * k + e)];
          up += in * w[static_cast<size_t>((f + j) * k + e)];
          dh += in * down[static_cast<size_t>(e * f + j)];
        }
        const auto at = static_cast<size_t>(i * 2 * f + j), up_at = at + static_cast<size_t>(f);
        const double s = sigmoid(gate);
        gate_up[at] = gate;
        gate_up[up_at] = up;
        h[static_cast<size_t>(i * f + j)] = gate * s * up;
        gradient[at] = dh * up * s * (1 + gate * (1 - s));
        gradient[up_at] = dh * gate * s;
      }
    }
    const std::vector<double> unwritten(gate_up.size(), NAN);
    const Array on_x(DType::kBF16, x), on_w(DType::kBF16, w), on_down(DType::kBF16, down);
    const Array on_gate_up(DType::kBF16, unwritten), on_out(DType::kBF16, unwritten);
    const Array on_h(DType::kBF16, std::vector<double>(h.size(), NAN));
    for (const int multiprocessors : {0, 6}) {
      gpu::wgmma_swiglu_forward({m, k, f, on_x.data(), on_w.data(), on_gate_up.data(), on_h.data()},
                                multiprocessors);
      EXPECT_EQ(on_gate_up.values(), gate_up);
      expect_rounded(on_h.values(), h);
      gpu::wgmma_swiglu_backward(
          {m, k, f, on_x.data(), on_down.data(), on_gate_up.data(), on_out.data()},
          multiprocessors);
      expect_rounded(on_out.values(), gradient);
    }
    // In place.
    gpu::wgmma_swiglu_backward(
        {m, k, f, on_x.data(), on_down.data(), on_gate_up.data(), on_gate_up.data()});
    EXPECT_EQ(on_gate_up.values(), on_out.values());
  }
}

// On integers products are exact, so that only a difference in swiglu itself could show.
TEST_F(GpuWgmma, LinearAndSwigluAsOneGiveTheBitsOfTheTwo) {
  const int64_t m = 1024, k = 512, f = 1024;
  const Attrs none;
  const auto view = [](const Array& array, Shape shape, DType dtype = DType::kBF16) {
    return TensorView{array.data(), std::move(shape), dtype};
  };
  const auto empty = [](int64_t count) {
    return std::vector<double>(static_cast<size_t>(count), NAN);
  };
  const Array x(DType::kBF16, integers(m * k, 1)), w_up(DType::kBF16, integers(2 * f * k, 2));
  const Array w_down(DType::kBF16, integers(k * f, 3)), dy(DType::kBF16, integers(m * k, 4));
  const auto run = [&](bool as_one) {
    const Array gate_up(DType::kBF16, empty(m * 2 * f)), h(DType::kBF16, empty(m * f));
    const Array dh(DType::kBF16, empty(m * f)), d_gate_up(DType::kBF16, empty(m * 2 * f));
    const Array dw(DType::kF32, empty(k * f));
    const TensorView up_in[] = {view(x, {m, k}), view(w_up, {2 * f, k})};
    const TensorView gates = view(gate_up, {m, 2 * f}), hidden = view(h, {m, f});
    const TensorView down_in[] = {hidden, view(w_down, {k, f})};
    const OpCall up{&none, up_in, {&gates, 1}, {}, nullptr};
    const OpCall activation{&none, {&gates, 1}, {&hidden, 1}, {}, nullptr};
    const OpCall down{&none, down_in, {}, {}, nullptr};
    const TensorView d_out = view(dy, {m, k}), d_hidden = view(dh, {m, f});
    const GradView d_gates{view(d_gate_up, {m, 2 * f}), false};
    std::array<GradView, 2> d_down{GradView{d_hidden, false},
                                   GradView{view(dw, {k, f}, DType::kF32), false}};
    const Backend& backend = gpu_backend();
    if (as_one) {
      d_down[0] = {};
      EXPECT_TRUE(backend.pair("linear", "swiglu")->forward(up, activation));
      EXPECT_TRUE(backend.pair("swiglu", "linear")
                      ->backward(activation, {&d_gates, 1}, down, {&d_out, 1}, d_down));
    } else {
      backend.kernels("linear").forward(up);
      backend.kernels("swiglu").forward(activation);
      backend.kernels("linear").backward(down, {&d_out, 1}, d_down);
      backend.kernels("swiglu").backward(activation, {&d_hidden, 1}, {&d_gates, 1});
    }
    return std::array{gate_up.values(), h.values(), dw.values(), d_gate_up.values()};
  };
  const auto one = run(true), two = run(false);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i], two[i]) << i;
}

}  // namespace
}  // namespace vitrine::test
