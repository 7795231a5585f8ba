// The fast CPU row against the reference row, forward and backward, for every case and dtype.
#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel.h"
#include "support/op_checks.h"
#include "support/tolerance.h"

namespace vitrine::test {
namespace {

using Param = std::tuple<OpCase, DType>;

class FastRow : public testing::TestWithParam<Param> {};

TEST_P(FastRow, AgreesWithTheReferenceForwardAndBackward) {
  const auto& [c, dtype] = GetParam();
  auto in = make_inputs(c, dtype, 3);
  const ForwardResult expected = run_forward(reference_backend(), c, in);
  const ForwardResult got = run_forward(cpu_backend(), c, in);
  expect_near(c, got.out, expected.out, fast_row(dtype), c.label() + " out");
  auto dout = output_gradients(expected);
  BackwardOptions options;
  for (const bool f32_parameters : {false, true}) {
    options.f32_parameters = f32_parameters;
    options.accumulate = false;
    expect_near(c,
                run_backward(cpu_backend(), c, in, got, dout, options),
                run_backward(reference_backend(), c, in, expected, dout, options),
                fast_row(dtype),
                c.label() + " din");
    options.accumulate = true;
    options.initial.clear();
    for (const Tensor& tensor : in)
      options.initial.push_back(random_values(tensor.type().shape.elements(), 9));
    expect_near(c,
                run_backward(cpu_backend(), c, in, got, dout, options),
                run_backward(reference_backend(), c, in, expected, dout, options),
                fast_row(dtype),
                c.label() + " accumulated din");
  }
}

TEST_P(FastRow, GivesEachGradientAloneAndFromEachOutputAlone) {
  const auto& [c, dtype] = GetParam();
  auto in = make_inputs(c, dtype, 4);
  const ForwardResult expected = run_forward(reference_backend(), c, in);
  const ForwardResult got = run_forward(cpu_backend(), c, in);
  auto dout = output_gradients(expected);
  for (size_t i = 0; i < in.size(); ++i) {
    if (!(find_op(c.op).differentiable >> i & 1u)) continue;
    for (uint32_t mask = 0; mask < 1u << dout.size(); ++mask) {
      BackwardOptions options;
      options.din_mask = 1u << i;
      options.dout_mask = mask;
      expect_near(c,
                  run_backward(cpu_backend(), c, in, got, dout, options),
                  run_backward(reference_backend(), c, in, expected, dout, options),
                  fast_row(dtype),
                  c.label() + " din from outputs " + std::to_string(mask));
    }
  }
}

TEST_P(FastRow, RepeatsBitwise) {
  const auto& [c, dtype] = GetParam();
  auto in = make_inputs(c, dtype, 3);
  const ForwardResult first = run_forward(cpu_backend(), c, in),
                      second = run_forward(cpu_backend(), c, in);
  for (size_t i = 0; i < first.out.size(); ++i)
    EXPECT_EQ(first.out[i].values(), second.out[i].values());
  auto dout = output_gradients(first);
  const auto a = run_backward(cpu_backend(), c, in, first, dout),
             b = run_backward(cpu_backend(), c, in, second, dout);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].values(), b[i].values());
}

// As in an evaluation, where nothing of the gradients is wanted.
TEST(LinearCrossEntropy, WithoutPlacesForItsGradientsGivesTheSameLoss) {
  const OpCase c{"linear_cross_entropy",
                 {{"chunk_rows", 2}, {"gradient_in_forward", 1}},
                 {{5, 4}, {7, 4}, {5}},
                 7,
                 true};
  auto in = make_inputs(c, DType::kF32, 3);
  for (const Backend* backend : {&reference_backend(), &cpu_backend()}) {
    ForwardResult full = run_forward(*backend, c, in);
    Tensor loss(full.out[0].type()), lse(full.saved[0].type()), count(full.saved[1].type()),
        dx(full.saved[2].type());
    Tensor workspace({Shape{2, 7}, DType::kF32});
    const std::vector<TensorView> views = {in[0].view(), in[1].view(), in[2].view()};
    const std::vector<TensorView> out = {loss.view()};
    const std::vector<TensorView> saved = {lse.view(), count.view(), dx.view(), {}};
    backend->kernels(c.op).forward({&c.attrs, views, out, saved, workspace.view().data});
    EXPECT_EQ(loss.values(), full.out[0].values()) << backend->name();
    for (const double x : dx.values()) EXPECT_TRUE(std::isnan(x)) << backend->name();
  }
}

std::vector<OpCase> all_cases() {
  auto cases = small_op_cases();
  for (const OpCase& c : large_op_cases()) cases.push_back(c);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops,
                         FastRow,
                         testing::Combine(testing::ValuesIn(all_cases()),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).op + "_" +
                                  dtype_name(std::get<1>(info.param)) + "_" +
                                  std::to_string(info.index);
                         });

}  // namespace
}  // namespace vitrine::test
