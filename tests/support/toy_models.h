// Small models for tests of sharding, recomputation and pipelines, written with the public block
// interface.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "nn/model.h"
#include "nn/ops.h"

namespace vitrine::testing {

struct ToyEmbed : Block {
  int64_t vocab, width;
  ToyEmbed(int64_t v, int64_t d) : vocab(v), width(d) {}
  std::string kind() const override { return "toy_embed"; }
  void declare(ParameterList& p) const override {
    p.add("table", {vocab, width}, Init::normal(0.1));
  }
  void forward(TapeBuilder& t) const override {
    t.output("residual", nn::embedding(t, t.input("tokens"), t.parameter("table")));
  }
};

// Attention and an MLP of odd sizes, with a bias, so that shards are uneven.
struct ToyBody : Block {
  int64_t width, heads, hidden;
  ToyBody(int64_t d, int64_t h, int64_t f) : width(d), heads(h), hidden(f) {}
  std::string kind() const override { return "toy_body" + std::to_string(hidden); }
  void declare(ParameterList& p) const override {
    p.add("norm", {width}, Init::constant(1), false);
    p.add("wqkv", {3 * width, width}, Init::normal(0.1));
    p.add("wo", {width, width}, Init::normal(0.1));
    p.add("mlp_norm", {width}, Init::constant(1), false);
    p.add("w_up", {2 * hidden, width}, Init::normal(0.1));
    p.add("w_down", {width, hidden}, Init::normal(0.1));
    p.add("b_down", {width}, Init::zeros(), false);
  }
  void forward(TapeBuilder& t) const override {
    const nn::AttentionShape shape{heads, heads, width / heads};
    Value residual = t.input("residual"), normed;
    if (t.has_input("delta")) {
      const auto sum = nn::add_rms_norm(t, residual, t.input("delta"), t.parameter("norm"));
      residual = sum.sum, normed = sum.normed;
    } else {
      normed = nn::rms_norm(t, residual, t.parameter("norm"));
    }
    const Value qkv = nn::rotary(t, nn::linear(t, normed, t.parameter("wqkv")), shape, 1);
    const Value mixed = nn::linear(t, nn::attention(t, qkv, shape, 1, true), t.parameter("wo"));
    const auto mlp = nn::add_rms_norm(t, residual, mixed, t.parameter("mlp_norm"));
    const Value up = nn::swiglu(t, nn::linear(t, mlp.normed, t.parameter("w_up")));
    t.output("residual", mlp.sum);
    t.output("delta", nn::linear(t, up, t.parameter("w_down"), t.parameter("b_down")));
  }
};

struct ToyHead : Block {
  int64_t vocab, width;
  bool tied;
  ToyHead(int64_t v, int64_t d, bool tie) : vocab(v), width(d), tied(tie) {}
  std::string kind() const override { return "toy_head"; }
  void declare(ParameterList& p) const override {
    p.add("norm", {width}, Init::constant(1), false);
    if (tied) {
      p.tie("weight", {vocab, width}, "embed.table");
    } else {
      p.add("weight", {vocab, width}, Init::normal(0.1));
    }
  }
  void forward(TapeBuilder& t) const override {
    const auto last =
        nn::add_rms_norm(t, t.input("residual"), t.input("delta"), t.parameter("norm"));
    t.output("loss",
             nn::linear_cross_entropy(t, last.normed, t.parameter("weight"), t.input("targets")));
  }
};

inline Model toy_decoder(int layers, bool tied, int64_t vocab = 53, int64_t width = 24) {
  Model model;
  model.add("embed", std::make_unique<ToyEmbed>(vocab, width), {{"tokens", "batch.tokens"}});
  std::string last = "embed";
  for (int i = 0; i < layers; ++i) {
    const std::string name = "body." + std::to_string(i);
    std::vector<std::pair<std::string, PortSource>> in = {{"residual", last + ".residual"}};
    if (i > 0) in.emplace_back("delta", last + ".delta");
    model.add(name, std::make_unique<ToyBody>(width, 2, 37), in);
    last = name;
  }
  model.add(
      "head",
      std::make_unique<ToyHead>(vocab, width, tied),
      {{"residual", last + ".residual"}, {"delta", last + ".delta"}, {"targets", "batch.targets"}});
  model.add_loss("head.loss");
  return model;
}

}  // namespace vitrine::testing
