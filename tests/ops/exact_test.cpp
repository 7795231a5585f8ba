// Matrix products of small integers are exact in every dtype, so a wrong index or a lost term
// shows.
#include <gtest/gtest.h>

#include "core/philox.h"
#include "support/op_runner.h"

namespace vitrine::test {
namespace {

std::vector<double> integers(int64_t count, uint64_t seed) {
  const Philox random(seed, stream_of("integers"));
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(random.below(3, i)) - 1;
  return values;
}

// Sums of at most 100 products of -1, 0, 1 stay below 2^8, which bf16 holds exactly.
void expect_exact(int64_t m, int64_t k, int64_t n, DType dtype) {
  OpCase c{"linear", {}, {Shape{m, k}, Shape{n, k}, Shape{n}}};
  std::vector<Tensor> in;
  for (const TensorType& type : c.types(dtype)) {
    in.emplace_back(type);
    in.back().set(integers(type.shape.elements(), in.size()));
  }
  const auto x = in[0].values(), w = in[1].values(), bias = in[2].values(), dy = integers(m * n, 9);
  std::vector<double> y(static_cast<size_t>(m * n)), dx(x.size()), dw(w.size()), dbias(bias.size());
  for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
    for (size_t j = 0; j < static_cast<size_t>(n); ++j) {
      const size_t depth = static_cast<size_t>(k), place = i * static_cast<size_t>(n) + j;
      y[place] = bias[j];
      dbias[j] += dy[place];
      for (size_t q = 0; q < depth; ++q) {
        y[place] += x[i * depth + q] * w[j * depth + q];
        dx[i * depth + q] += dy[place] * w[j * depth + q];
        dw[j * depth + q] += dy[place] * x[i * depth + q];
      }
    }
  }
  const ForwardResult forward = run_forward(cpu_backend(), c, in);
  EXPECT_EQ(forward.out[0].values(), y) << m << " " << k << " " << n << " " << dtype_name(dtype);
  std::vector<Tensor> dout{Tensor(forward.out[0].type())};
  dout[0].set(dy);
  const auto din = run_backward(cpu_backend(), c, in, forward, dout);
  EXPECT_EQ(din[0].values(), dx) << m << " " << k << " " << n << " " << dtype_name(dtype);
  EXPECT_EQ(din[1].values(), dw) << m << " " << k << " " << n << " " << dtype_name(dtype);
  EXPECT_EQ(din[2].values(), dbias) << m << " " << k << " " << n << " " << dtype_name(dtype);
}

TEST(Exact, LinearOfSmallIntegersInEveryDtype) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    for (const int64_t m : {1, 7, 64, 99}) {
      for (const int64_t k : {1, 16, 33, 100}) {
        for (const int64_t n : {1, 8, 31, 96}) expect_exact(m, k, n, dtype);
      }
    }
  }
}

}  // namespace
}  // namespace vitrine::test
