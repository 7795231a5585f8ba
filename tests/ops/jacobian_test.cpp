// Every backward of the reference row against central differences in f64, for every input element.
#include <gtest/gtest.h>

#include "support/op_runner.h"
#include "support/tolerance.h"

namespace vitrine::test {
namespace {

// <r, out> summed over the outputs in the mask.
double projection(const OpCase& c, std::vector<Tensor>& in, std::vector<Tensor>& r, uint32_t mask) {
  const ForwardResult result = run_forward(reference_backend(), c, in);
  double sum = 0;
  for (size_t o = 0; o < r.size(); ++o) {
    if (!(mask >> o & 1u)) continue;
    const auto a = result.out[o].values(), b = r[o].values();
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  }
  return sum;
}

std::vector<double> numeric_gradient(
    const OpCase& c, std::vector<Tensor> in, size_t input, std::vector<Tensor>& r, uint32_t mask) {
  const auto values = in[input].values();
  std::vector<double> gradient(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t place = static_cast<int64_t>(i);
    in[input].set(place, values[i] + kJacobianStep);
    const double above = projection(c, in, r, mask);
    in[input].set(place, values[i] - kJacobianStep);
    const double below = projection(c, in, r, mask);
    in[input].set(place, values[i]);
    gradient[i] = (above - below) / (2 * kJacobianStep);
  }
  return gradient;
}

class Jacobian : public testing::TestWithParam<OpCase> {};

TEST_P(Jacobian, OfTheReferenceBackwardIsThatOfItsForward) {
  const OpCase& c = GetParam();
  auto in = make_inputs(c, DType::kF64, 1);
  const ForwardResult forward = run_forward(reference_backend(), c, in);
  std::vector<Tensor> r;
  for (const Tensor& out : forward.out) {
    r.emplace_back(out.type());
    r.back().set(random_values(out.type().shape.elements(), 5 + r.size()));
  }
  const uint32_t all = (1u << r.size()) - 1;
  for (uint32_t mask = 1; mask <= all; ++mask) {  // the other outputs have no gradient
    BackwardOptions options;
    options.dout_mask = mask;
    const auto written = run_backward(reference_backend(), c, in, forward, r, options);
    options.accumulate = true;
    for (const Tensor& tensor : in)
      options.initial.push_back(random_values(tensor.type().shape.elements(), 9));
    const auto added = run_backward(reference_backend(), c, in, forward, r, options);
    for (size_t i = 0; i < in.size(); ++i) {
      if (!(find_op(c.op).differentiable >> i & 1u)) continue;
      const auto expected = numeric_gradient(c, in, i, r, mask);
      EXPECT_LT(relative_error(written[i].values(), expected), kJacobian)
          << c.label() << " input " << i << " mask " << mask;
      auto difference = added[i].values();
      for (size_t j = 0; j < difference.size(); ++j) difference[j] -= options.initial[i][j];
      EXPECT_LT(relative_error(difference, expected), kJacobian)
          << c.label() << " accumulated, input " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Jacobian, testing::ValuesIn(small_op_cases()), [](const auto& info) {
  return info.param.op + "_" + std::to_string(info.index);
});

}  // namespace
}  // namespace vitrine::test
