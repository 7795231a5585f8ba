// Both CPU rows against values and gradients that PyTorch computed (tools/make_op_golden.py).
#include <gtest/gtest.h>

#include "core/json.h"
#include "support/op_runner.h"
#include "support/tolerance.h"

namespace vitrine::test {
namespace {

struct Golden {
  OpCase c;
  std::vector<Tensor> in;
  std::vector<std::vector<double>> outputs, output_gradients, input_gradients;
};

std::vector<Golden> read_golden(DType dtype) {
  std::vector<Golden> all;
  const Json document = read_json_file("tests/golden/ops.json");
  for (const Json& entry : document.at("cases")) {
    Golden golden;
    golden.c.op = entry.at("op").get<std::string>();
    for (const auto& [name, value] : entry.at("attrs").items())
      golden.c.attrs.set(name, value.get<double>());
    for (const Json& input : entry.at("inputs")) {
      golden.c.shapes.emplace_back(input.at("shape").get<std::vector<int64_t>>());
      const bool ids = input.at("ids").get<bool>();
      golden.in.emplace_back(TensorType{golden.c.shapes.back(), ids ? DType::kI32 : dtype});
      golden.in.back().set(input.at("values").get<std::vector<double>>());
    }
    using Lists = std::vector<std::vector<double>>;
    golden.outputs = entry.at("outputs").get<Lists>();
    golden.output_gradients = entry.at("output_gradients").get<Lists>();
    golden.input_gradients = entry.at("input_gradients").get<Lists>();
    all.push_back(golden);
  }
  return all;
}

void expect_golden(const Backend& backend, DType dtype) {
  const auto all = read_golden(dtype);
  ASSERT_GE(all.size(), 20u);
  for (Golden golden : all) {
    const ForwardResult forward = run_forward(backend, golden.c, golden.in);
    std::vector<Tensor> dout;
    for (size_t o = 0; o < forward.out.size(); ++o) {
      EXPECT_LT(relative_error(forward.out[o].values(), golden.outputs[o]), kGolden)
          << golden.c.label();
      dout.emplace_back(forward.out[o].type());
      dout.back().set(golden.output_gradients[o]);
    }
    const auto din = run_backward(backend, golden.c, golden.in, forward, dout);
    for (size_t i = 0; i < din.size(); ++i) {
      EXPECT_LT(relative_error(din[i].values(), golden.input_gradients[i]), kGolden)
          << golden.c.label() << " gradient of input " << i;
    }
  }
}

TEST(Golden, ReferenceRowInF64IsThatOfPyTorch) { expect_golden(reference_backend(), DType::kF64); }
TEST(Golden, ReferenceRowInF32IsThatOfPyTorch) { expect_golden(reference_backend(), DType::kF32); }
TEST(Golden, FastRowIsThatOfPyTorch) { expect_golden(cpu_backend(), DType::kF32); }

}  // namespace
}  // namespace vitrine::test
