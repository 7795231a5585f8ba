// A small sequence model around the own block: embedding, N x gated convolution, loss.
#pragma once

#include <memory>

#include "gated_convolution.h"
#include "nn/model.h"

// tokens [B, T, 1] -> residual, delta [B, T, 1, D]: two tables, so that every body block is alike.
class Embed : public vitrine::Block {
 public:
  Embed(int64_t vocabulary, int64_t width) : vocabulary_(vocabulary), width_(width) {}
  std::string kind() const override { return "embed"; }
  void declare(vitrine::ParameterList& parameters) const override {
    parameters.add("table", {vocabulary_, width_}, vitrine::Init::normal(1));
    parameters.add("delta_table", {vocabulary_, width_}, vitrine::Init::zeros());
  }
  void forward(vitrine::TapeBuilder& tape) const override {
    const vitrine::Value tokens = tape.input("tokens");
    tape.output("residual", vitrine::nn::embedding(tape, tokens, tape.parameter("table")));
    tape.output("delta", vitrine::nn::embedding(tape, tokens, tape.parameter("delta_table")));
  }

 private:
  int64_t vocabulary_, width_;
};

// residual, delta [B, T, 1, D], targets [B, T, 1] -> loss [1]
class Head : public vitrine::Block {
 public:
  Head(int64_t vocabulary, int64_t width) : vocabulary_(vocabulary), width_(width) {}
  std::string kind() const override { return "head"; }
  void declare(vitrine::ParameterList& parameters) const override {
    parameters.add("norm", {width_}, vitrine::Init::constant(1), /*decay=*/false);
    parameters.add("weight", {vocabulary_, width_}, vitrine::Init::normal(0.1));
  }
  void forward(vitrine::TapeBuilder& tape) const override {
    const auto [sum, normed] = vitrine::nn::add_rms_norm(
        tape, tape.input("residual"), tape.input("delta"), tape.parameter("norm"));
    tape.output("loss",
                vitrine::nn::linear_cross_entropy(
                    tape, normed, tape.parameter("weight"), tape.input("targets")));
  }

 private:
  int64_t vocabulary_, width_;
};

inline vitrine::Model make_model(int64_t vocabulary, int64_t width, int layers) {
  vitrine::Model model;
  model.description = "gated convolutions";
  model.add("embed", std::make_unique<Embed>(vocabulary, width), {{"tokens", "batch.tokens"}});
  std::string last = "embed";
  for (int i = 0; i < layers; ++i) {
    const std::string name = "body." + std::to_string(i);
    model.add(name,
              std::make_unique<GatedConvolution>(width, 2 * width),
              {{"residual", last + ".residual"}, {"delta", last + ".delta"}});
    last = name;
  }
  model.add(
      "head",
      std::make_unique<Head>(vocabulary, width),
      {{"residual", last + ".residual"}, {"delta", last + ".delta"}, {"targets", "batch.targets"}});
  model.add_loss("head.loss");
  return model;
}
