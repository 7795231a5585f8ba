// A block of one's own: a gated causal convolution of width two, made of existing operations.
#pragma once

#include "nn/ops.h"

// residual, delta [B, T, 1, D] -> residual, delta of the same shape. A convolution over (x_t,
// x_(t-1)) is a linear layer of [x_t ; x_t - x_(t-1)], so N of these blocks see N + 1 positions and
// none ahead.
class GatedConvolution : public vitrine::Block {
 public:
  GatedConvolution(int64_t width, int64_t hidden) : width_(width), hidden_(hidden) {}

  // Blocks of one kind share one tape, so the kind carries every number that changes it.
  std::string kind() const override {
    return "gated_convolution " + std::to_string(width_) + " " + std::to_string(hidden_);
  }

  void declare(vitrine::ParameterList& parameters) const override {
    using vitrine::Init;
    parameters.add("norm", {width_}, Init::constant(1), /*decay=*/false);
    parameters.add("w_gate_up", {2 * hidden_, 2 * width_}, Init::normal(0.1));
    parameters.add("w_down", {width_, hidden_}, Init::normal(0.1));
  }

  // Written once: backward, recomputation, sharding and tracing follow from the recorded
  // operations.
  void forward(vitrine::TapeBuilder& tape) const override {
    namespace nn = vitrine::nn;
    const auto [residual, normed] =
        nn::add_rms_norm(tape, tape.input("residual"), tape.input("delta"), tape.parameter("norm"));
    const vitrine::Value pair = nn::frame_difference(tape, normed);  // [B, T, 1, 2D]
    const vitrine::Value gate_up =
        nn::linear(tape, pair, tape.parameter("w_gate_up"));  // [B, T, 1, 2F]
    tape.output("residual", residual);
    tape.output("delta", nn::linear(tape, nn::swiglu(tape, gate_up), tape.parameter("w_down")));
  }

 private:
  int64_t width_, hidden_;
};
