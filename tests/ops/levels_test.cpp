// Every instruction set that the fast row is compiled for, and what it makes of NaN.
#include "ops/cpu/fast/levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "support/op_runner.h"
#include "support/tolerance.h"

namespace vitrine::test {
namespace {

std::vector<Tensor> output_gradients(const ForwardResult& forward) {
  std::vector<Tensor> dout;
  for (const Tensor& out : forward.out) {
    dout.emplace_back(out.type());
    dout.back().set(random_values(out.type().shape.elements(), 31 + dout.size()));
  }
  return dout;
}

void expect_as_reference(const Backend& backend) {
  for (const OpCase& c : large_op_cases()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      auto in = make_inputs(c, dtype, 3);
      const ForwardResult expected = run_forward(reference_backend(), c, in);
      const ForwardResult got = run_forward(backend, c, in);
      for (size_t i = 0; i < got.out.size(); ++i) {
        EXPECT_LT(relative_error(got.out[i].values(), expected.out[i].values()),
                  c.roundings * fast_row(dtype))
            << c.label() << " " << dtype_name(dtype);
      }
      auto dout = output_gradients(expected);
      const auto a = run_backward(backend, c, in, got, dout);
      const auto b = run_backward(reference_backend(), c, in, expected, dout);
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_LT(relative_error(a[i].values(), b[i].values()), c.roundings * fast_row(dtype))
            << c.label() << " " << dtype_name(dtype) << " gradient " << i;
      }
    }
  }
}

TEST(Levels, BaselineAgreesWithTheReference) {
  Backend backend("baseline");
  fast::baseline::add_all(backend);
  expect_as_reference(backend);
}

#if defined(__x86_64__)
TEST(Levels, V3AgreesWithTheReference) {
  if (!__builtin_cpu_supports("x86-64-v3")) GTEST_SKIP() << "this processor has no AVX2";
  Backend backend("x86-64-v3");
  fast::x86_64_v3::add_all(backend);
  expect_as_reference(backend);
}
#endif

TEST(Threads, ChangeResultsByRoundingAlone) {
  const int before = compute_threads();
  for (const int threads : {1, 2, 3}) {
    set_compute_threads(threads);
    expect_as_reference(cpu_backend());
  }
  set_compute_threads(before);
}

// A NaN must reach the output and the gradients, or a broken run would look healthy.
TEST(NotANumber, PassesThroughTheFastRow) {
  for (const OpCase& c : small_op_cases()) {
    if (c.is_ids(0) || c.op == "time_slice" || c.op == "take_token" || c.op == "shift_window")
      continue;
    auto in = make_inputs(c, DType::kF32, 3);
    in[0].set(0, NAN);
    const ForwardResult forward = run_forward(cpu_backend(), c, in);
    bool found = false;
    for (const Tensor& out : forward.out) {
      const auto values = out.values();
      found = found ||
              std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
    }
    EXPECT_TRUE(found) << c.label();
  }
}

}  // namespace
}  // namespace vitrine::test
