// Two operations that a backend runs as one: the tape hands them over together where that changes
// nothing, and one by one where the backend refuses or another gradient reaches the value between.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "nn/ops.h"
#include "tape/tape.h"

namespace vitrine {
namespace {

constexpr int64_t kRows = 5, kWidth = 6, kHidden = 7;

int forwards = 0, backwards = 0;
bool refuses = false;
std::vector<float> between(kRows * 2 * kHidden);

bool both_forward(const OpCall& first, const OpCall& second) {
  if (refuses) return false;
  ++forwards;
  cpu_backend().kernels("linear").forward(first);
  cpu_backend().kernels("swiglu").forward(second);
  return true;
}

// swiglu, then linear: what passes between them lies in memory of the pair's own.
bool both_backward(const OpCall& first,
                   std::span<const GradView> first_din,
                   const OpCall& second,
                   std::span<const TensorView> dout,
                   std::span<const GradView> second_din) {
  if (refuses) return false;
  ++backwards;
  EXPECT_FALSE(second_din[0]);
  std::vector<GradView> din(second_din.begin(), second_din.end());
  const TensorView dh{between.data(), second.in[0].shape, DType::kF32};
  din[0] = {dh, false};
  cpu_backend().kernels("linear").backward(second, dout, din);
  cpu_backend().kernels("swiglu").backward(first, {&dh, 1}, first_din);
  return true;
}

bool never(const OpCall&, const OpCall&) { return false; }
bool never_back(const OpCall&,
                std::span<const GradView>,
                const OpCall&,
                std::span<const TensorView>,
                std::span<const GradView>) {
  return false;
}

Backend pairing_backend() {
  Backend backend("pairs");
  for (const char* op : {"linear", "swiglu", "add"}) backend.add(op, cpu_backend().kernels(op));
  backend.add_pair({"linear", "swiglu", both_forward, never_back});
  backend.add_pair({"swiglu", "linear", never, both_backward});
  return backend;
}

// y = swiglu(x w_upᵀ) w_downᵀ, and where `shared` also the hidden values as a second output.
Tape record(bool shared) {
  const auto f32 = [](Shape shape) { return TensorType{std::move(shape), DType::kF32}; };
  TapeBuilder tape(
      "mlp",
      {{"x", f32({kRows, kWidth}), true}},
      {{"w_up", f32({2 * kHidden, kWidth}), true}, {"w_down", f32({kWidth, kHidden}), true}});
  const Value x = tape.input("x"), twice = nn::add(tape, x, x);
  const Value h = nn::swiglu(tape, nn::linear(tape, twice, tape.parameter("w_up")));
  tape.output("y", nn::linear(tape, h, tape.parameter("w_down")));
  if (shared) tape.output("h", nn::add(tape, h, h));
  return tape.finish();
}

// Every number that a replay of the tape gives.
std::vector<float> replay(const Tape& tape, const Backend& backend) {
  std::vector<std::unique_ptr<std::vector<float>>> memory;
  const auto make = [&](const TensorType& type, float first) {
    auto& values = *memory.emplace_back(
        std::make_unique<std::vector<float>>(static_cast<size_t>(type.shape.elements())));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = first + 0.37f * static_cast<float>(i * 7 % 11) - 1.5f;
    return TensorView{values.data(), type.shape, type.dtype};
  };
  std::vector<TensorView> inputs, outputs, parameters, doutputs;
  std::vector<GradView> dinputs, dparameters;
  for (const PortType& port : tape.inputs()) {
    inputs.push_back(make(port.type, 0.1f));
    dinputs.push_back({make(port.type, 0), false});
  }
  for (const PortType& port : tape.parameters()) {
    parameters.push_back(make(port.type, 0.2f));
    dparameters.push_back({make(port.type, 0), false});
  }
  for (const PortType& port : tape.outputs()) {
    outputs.push_back(make(port.type, 0));
    doutputs.push_back(make(port.type, 0.3f));
  }
  const TapeLayout& layout = tape.layout();
  std::vector<double> saved(static_cast<size_t>(layout.saved_bytes / 8 + 8));
  std::vector<double> scratch(static_cast<size_t>(
      std::max(layout.forward_scratch_bytes, layout.backward_scratch_bytes) / 8 + 8));
  TapeBindings bindings;
  bindings.inputs = inputs;
  bindings.outputs = outputs;
  bindings.parameters = parameters;
  bindings.doutputs = doutputs;
  bindings.dinputs = dinputs;
  bindings.dparameters = dparameters;
  bindings.saved = saved.data();
  bindings.scratch = scratch.data();
  tape.forward(backend, bindings, nullptr);
  tape.backward(backend, bindings, nullptr);
  std::vector<float> all;
  for (const auto& values : memory) all.insert(all.end(), values->begin(), values->end());
  return all;
}

class TapePairs : public testing::Test {
 protected:
  void SetUp() override {
    forwards = backwards = 0;
    refuses = false;
  }
};

TEST_F(TapePairs, GiveWhatTheTwoGiveAlone) {
  const Tape tape = record(false);
  EXPECT_EQ(replay(tape, pairing_backend()), replay(tape, cpu_backend()));
  EXPECT_EQ(forwards, 1);
  EXPECT_EQ(backwards, 1);
}

TEST_F(TapePairs, RunOneByOneWhereTheBackendRefuses) {
  refuses = true;
  const Tape tape = record(false);
  EXPECT_EQ(replay(tape, pairing_backend()), replay(tape, cpu_backend()));
  EXPECT_EQ(forwards + backwards, 0);
}

TEST_F(TapePairs, RunOneByOneWhereTheValueBetweenHasAnotherGradient) {
  const Tape tape = record(true);
  EXPECT_EQ(replay(tape, pairing_backend()), replay(tape, cpu_backend()));
  EXPECT_EQ(forwards, 1);
  EXPECT_EQ(backwards, 0);
}

}  // namespace
}  // namespace vitrine
