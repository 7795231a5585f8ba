// The GPU's matrix products on small integers, which are exact in every dtype, and attention at
// sizes where the oracle is taken row by row.
#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"
#include "support/gpu_fixture.h"
#include "support/op_runner.h"

namespace vitrine::test {
namespace {

class GpuExact : public GpuFixture {};

// -1, 0 and 1: a product of depth k has sums below k, which bf16 holds exactly up to 256.
std::vector<double> integers(int64_t count, uint64_t seed) {
  const Philox random(seed, stream_of("integers"));
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(random.below(3, i)) - 1;
  return values;
}

struct Sizes {
  int64_t m, k, n;
};

// y = x wᵀ + bias and all gradients, by hand.
struct Expected {
  std::vector<double> y, dx, dw, dbias;

  Expected(const Sizes& s,
           const std::vector<double>& x,
           const std::vector<double>& w,
           const std::vector<double>& bias,
           const std::vector<double>& dy)
      : y(dy.size()), dx(x.size()), dw(w.size()), dbias(bias.size()) {
    const auto m = static_cast<size_t>(s.m), k = static_cast<size_t>(s.k),
               n = static_cast<size_t>(s.n);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const double g = dy[i * n + j];
        double sum = bias[j];
        dbias[j] += g;
        for (size_t c = 0; c < k; ++c) {
          sum += x[i * k + c] * w[j * k + c];
          dx[i * k + c] += g * w[j * k + c];
          dw[j * k + c] += g * x[i * k + c];
        }
        y[i * n + j] = sum;
      }
    }
  }
};

std::vector<double> sum_of(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

void expect_exact(const Sizes& s, DType dtype) {
  const OpCase c{"linear", {}, {Shape{s.m, s.k}, Shape{s.n, s.k}, Shape{s.n}}};
  const std::string where = c.label() + " " + dtype_name(dtype);
  std::vector<Tensor> in;
  for (const TensorType& type : c.types(dtype)) {
    in.emplace_back(type);
    in.back().set(integers(type.shape.elements(), in.size()));
  }
  const auto dy = integers(s.m * s.n, 9);
  const Expected expected(s, in[0].values(), in[1].values(), in[2].values(), dy);
  const ForwardResult forward = run_forward(gpu_backend(), c, in, gpu());
  EXPECT_EQ(forward.out[0].values(), expected.y) << where;
  std::vector<Tensor> dout{Tensor(forward.out[0].type())};
  dout[0].set(dy);
  for (const bool f32_parameters : {false, true}) {
    BackwardOptions options;
    options.f32_parameters = f32_parameters;
    auto din = run_backward(gpu_backend(), c, in, forward, dout, options, gpu());
    EXPECT_EQ(din[0].values(), expected.dx) << where;
    EXPECT_EQ(din[1].values(), expected.dw) << where;
    EXPECT_EQ(din[2].values(), expected.dbias) << where;
    options.accumulate = true;
    for (size_t i = 0; i < in.size(); ++i)
      options.initial.push_back(integers(in[i].type().shape.elements(), 20 + i));
    din = run_backward(gpu_backend(), c, in, forward, dout, options, gpu());
    EXPECT_EQ(din[0].values(), sum_of(expected.dx, options.initial[0])) << where << " added";
    EXPECT_EQ(din[1].values(), sum_of(expected.dw, options.initial[1])) << where << " added";
    EXPECT_EQ(din[2].values(), sum_of(expected.dbias, options.initial[2])) << where << " added";
  }
}

TEST_F(GpuExact, LinearOfSmallIntegersInEveryDtype) {
  // Odd strides leave rows unaligned; widths of 8 and 16 take vectors of 16 bytes.
  const Sizes all[] = {{1, 1, 1},
                       {7, 33, 31},
                       {64, 64, 64},
                       {99, 100, 8},
                       {128, 72, 200},
                       {200, 129, 17},
                       {255, 16, 1},
                       {33, 200, 96}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const Sizes& s : all) expect_exact(s, dtype);
  }
}

TEST_F(GpuExact, ColumnSumsOfManyRowsAreExactInF32) {
  const OpCase c{"linear", {}, {Shape{70001, 1}, Shape{264, 1}, Shape{264}}};
  std::vector<Tensor> in;
  for (const TensorType& type : c.types(DType::kBF16)) {
    in.emplace_back(type);
    in.back().set(integers(type.shape.elements(), in.size()));
  }
  std::vector<Tensor> dout{Tensor({Shape{70001, 264}, DType::kBF16})};
  const auto dy = integers(70001 * 264, 9);
  dout[0].set(dy);
  std::vector<double> expected(264);
  for (size_t i = 0; i < dy.size(); ++i) expected[i % 264] += dy[i];
  BackwardOptions options;
  options.f32_parameters = true;
  options.din_mask = 0b100;
  const ForwardResult forward = run_forward(gpu_backend(), c, in, gpu());
  const auto din = run_backward(gpu_backend(), c, in, forward, dout, options, gpu());
  EXPECT_EQ(din[2].values(), expected);
}

struct AttentionCase {
  int64_t batch, length, heads, kv_heads, head_dim;
  bool causal;
};

// The oracle of some queries: out and lse, in double.
class AttentionRows {
 public:
  AttentionRows(const AttentionCase& c, std::vector<double> qkv) : c_(c), qkv_(std::move(qkv)) {}

  // Row [head_dim] of query i and its lse.
  std::pair<std::vector<double>, double> row(int64_t b, int64_t h, int64_t i) const {
    const int64_t limit = c_.causal ? i + 1 : c_.length;
    const int64_t key_head = c_.heads + h / (c_.heads / c_.kv_heads);
    std::vector<double> p(static_cast<size_t>(limit)), out(static_cast<size_t>(c_.head_dim));
    double highest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < limit; ++j) {
      double score = 0;
      for (int64_t e = 0; e < c_.head_dim; ++e) score += at(b, i, h, e) * at(b, j, key_head, e);
      p[static_cast<size_t>(j)] = score / std::sqrt(static_cast<double>(c_.head_dim));
      highest = std::max(highest, p[static_cast<size_t>(j)]);
    }
    for (double& x : p) sum += x = std::exp(x - highest);
    for (int64_t j = 0; j < limit; ++j) {
      for (int64_t e = 0; e < c_.head_dim; ++e)
        out[static_cast<size_t>(e)] +=
            p[static_cast<size_t>(j)] / sum * at(b, j, key_head + c_.kv_heads, e);
    }
    return {out, highest + std::log(sum)};
  }

 private:
  double at(int64_t b, int64_t i, int64_t head, int64_t e) const {
    const int64_t width = (c_.heads + 2 * c_.kv_heads) * c_.head_dim;
    return qkv_[static_cast<size_t>((b * c_.length + i) * width + head * c_.head_dim + e)];
  }
  AttentionCase c_;
  std::vector<double> qkv_;
};

OpCase op_case(const AttentionCase& c) {
  const int64_t width = (c.heads + 2 * c.kv_heads) * c.head_dim;
  return {"attention",
          {{"heads", static_cast<double>(c.heads)},
           {"kv_heads", static_cast<double>(c.kv_heads)},
           {"head_dim", static_cast<double>(c.head_dim)},
           {"axis", 1},
           {"causal", c.causal ? 1.0 : 0.0}},
          {Shape{c.batch, c.length, width}}};
}

const AttentionCase kAttention[] = {{2, 128, 4, 4, 64, true},
                                    {1, 128, 4, 2, 128, false},
                                    {1, 1024, 2, 2, 64, false},
                                    {1, 1024, 4, 1, 128, true},
                                    {1, 333, 2, 1, 64, true}};

// Values of about 1 are averaged: outputs stay below 4, so a bf16 result is off by at most 2^-7 of
// rounding, and as much again from probabilities kept in bf16. lse is f32 of bf16 products.
TEST_F(GpuExact, AttentionForwardAgreesOnSampledRows) {
  for (const AttentionCase& c : kAttention) {
    const OpCase op = op_case(c);
    auto in = make_inputs(op, DType::kBF16, 5);
    const ForwardResult got = run_forward(gpu_backend(), op, in, gpu());
    const auto out = got.out[0].values(), lse = got.saved[0].values();
    const AttentionRows oracle(c, in[0].values());
    for (int64_t i = 0; i < c.length; i += std::max<int64_t>(1, c.length / 13)) {
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t b = i % c.batch;
        const auto [row, row_lse] = oracle.row(b, h, i);
        const size_t first = static_cast<size_t>(((b * c.length + i) * c.heads + h) * c.head_dim);
        for (size_t e = 0; e < row.size(); ++e)
          ASSERT_NEAR(out[first + e], row[e], 0x1p-6)
              << op.label() << " row " << i << " head " << h;
        const size_t place = static_cast<size_t>((b * c.heads + h) * c.length + i);
        ASSERT_NEAR(lse[place], row_lse, 1e-3) << op.label() << " row " << i << " head " << h;
      }
    }
  }
}

// dout is zero but in a few rows, so that the reference needs those rows alone: its gradient is
// taken by central differences of sum(dout * out) along a random direction.
TEST_F(GpuExact, AttentionBackwardAgreesAlongARandomDirection) {
  for (const AttentionCase& c : kAttention) {
    const OpCase op = op_case(c);
    auto in = make_inputs(op, DType::kBF16, 6);
    const ForwardResult forward = run_forward(gpu_backend(), op, in, gpu());
    std::vector<Tensor> dout{Tensor(forward.out[0].type())};
    std::vector<double> values(static_cast<size_t>(dout[0].type().shape.elements()));
    const std::vector<int64_t> rows{0, c.length / 3, c.length - 1};
    const size_t width = static_cast<size_t>(c.heads * c.head_dim);
    for (const int64_t i : rows) {
      const auto random = random_values(static_cast<int64_t>(width), 40 + static_cast<uint64_t>(i));
      std::copy(random.begin(), random.end(), values.begin() + i * static_cast<int64_t>(width));
    }
    dout[0].set(values);
    values = dout[0].values();
    const auto din = run_backward(gpu_backend(), op, in, forward, dout, {}, gpu());
    const auto gradient = din[0].values(), qkv = in[0].values();
    const auto direction = random_values(static_cast<int64_t>(qkv.size()), 77);
    const auto loss = [&](double step) {
      auto moved = qkv;
      for (size_t i = 0; i < moved.size(); ++i) moved[i] += step * direction[i];
      const AttentionRows oracle(c, std::move(moved));
      double sum = 0;
      for (const int64_t i : rows) {
        for (int64_t h = 0; h < c.heads; ++h) {
          const auto row = oracle.row(0, h, i).first;
          const size_t first = static_cast<size_t>((i * c.heads + h) * c.head_dim);
          for (size_t e = 0; e < row.size(); ++e) sum += values[first + e] * row[e];
        }
      }
      return sum;
    };
    const double expected = (loss(1e-4) - loss(-1e-4)) / 2e-4;
    double got = 0, size = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_TRUE(std::isfinite(gradient[i])) << op.label() << " element " << i;
      got += gradient[i] * direction[i];
      size += gradient[i] * gradient[i];
    }
    // Errors of elements are independent: 2^-7 of each adds to 2^-7 of the norm, times the normal
    // direction's few deviations.
    EXPECT_NEAR(got, expected, 4 * 0x1p-7 * std::sqrt(size)) << op.label();
  }
}

}  // namespace
}  // namespace vitrine::test
