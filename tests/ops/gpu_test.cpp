// The GPU's row against the reference row, forward and backward, for every case and dtype.

#include <gtest/gtest.h>

#include "core/error.h"
#include "support/gpu_fixture.h"
#include "support/op_checks.h"
#include "support/tolerance.h"

namespace vitrine::test {
namespace {

using Param = std::tuple<OpCase, DType>;

class GpuRow : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    const std::string why = why_no_gpu();
    if (!why.empty()) GTEST_SKIP() << why;
    const GpuDescription device = gpu_devices()[0];
    if (std::get<0>(GetParam()).attrs.has("fp8") && device.major * 10 + device.minor < 89) {
      GTEST_SKIP() << device.name << " has no 8-bit products";
    }
    if (!gpu_backend().has(std::get<0>(GetParam()).op)) FAIL() << "no row";
  }
};

TEST_P(GpuRow, AgreesWithTheReferenceForwardAndBackward) {
  const auto& [c, dtype] = GetParam();
  auto in = make_inputs(c, dtype, 3);
  const ForwardResult expected = run_forward(reference_backend(), c, in);
  const ForwardResult got = run_forward(gpu_backend(), c, in, gpu());
  expect_near(c, got.out, expected.out, gpu_row(dtype), c.label() + " out");
  auto dout = output_gradients(expected);
  BackwardOptions options;
  for (const bool f32_parameters : {false, true}) {
    options.f32_parameters = f32_parameters;
    options.accumulate = false;
    expect_near(c,
                run_backward(gpu_backend(), c, in, got, dout, options, gpu()),
                run_backward(reference_backend(), c, in, expected, dout, options),
                gpu_row(dtype),
                c.label() + " din");
    options.accumulate = true;
    options.initial.clear();
    for (const Tensor& tensor : in)
      options.initial.push_back(random_values(tensor.type().shape.elements(), 9));
    expect_near(c,
                run_backward(gpu_backend(), c, in, got, dout, options, gpu()),
                run_backward(reference_backend(), c, in, expected, dout, options),
                gpu_row(dtype),
                c.label() + " accumulated din");
  }
}

TEST_P(GpuRow, GivesEachGradientAloneAndFromEachOutputAlone) {
  const auto& [c, dtype] = GetParam();
  auto in = make_inputs(c, dtype, 4);
  const ForwardResult expected = run_forward(reference_backend(), c, in);
  const ForwardResult got = run_forward(gpu_backend(), c, in, gpu());
  auto dout = output_gradients(expected);
  for (size_t i = 0; i < in.size(); ++i) {
    if (!(find_op(c.op).differentiable >> i & 1u)) continue;
    for (uint32_t mask = 0; mask < 1u << dout.size(); ++mask) {
      BackwardOptions options;
      options.din_mask = 1u << i;
      options.dout_mask = mask;
      expect_near(c,
                  run_backward(gpu_backend(), c, in, got, dout, options, gpu()),
                  run_backward(reference_backend(), c, in, expected, dout, options),
                  gpu_row(dtype),
                  c.label() + " din from outputs " + std::to_string(mask));
    }
  }
}

const auto kDTypes = testing::Values(DType::kF32, DType::kBF16, DType::kF16);
INSTANTIATE_TEST_SUITE_P(Small,
                         GpuRow,
                         testing::Combine(testing::ValuesIn(small_op_cases()), kDTypes));
INSTANTIATE_TEST_SUITE_P(Large,
                         GpuRow,
                         testing::Combine(testing::ValuesIn(large_op_cases()), kDTypes));

TEST(Gpu, HasARowForEveryOperationOfTheRegistry) {
  for (const std::string& name : op_names()) EXPECT_TRUE(gpu_backend().has(name)) << name;
}

}  // namespace
}  // namespace vitrine::test
