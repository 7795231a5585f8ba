// Blocks of the vision transformer.
#include "models/vit.h"

#include <cmath>

#include "core/format.h"

namespace vitrine {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

void declare_norm(ParameterList& p, const std::string& name, int64_t width) {
  p.add(name, {width}, Init::constant(1), false);
  p.add(name + "_bias", {width}, Init::zeros(), false);
}

// frames [B, 1, Y, X, 3] -> residual [B, S, D]
class StemBlock : public Block {
 public:
  explicit StemBlock(VitConfig config) : c_(std::move(config)) {}
  std::string kind() const override {
    return format("vit.stem p%lld eps%.17g", static_cast<long long>(c_.patch), c_.norm_eps);
  }
  void declare(ParameterList& p) const override {
    const int64_t values = 3 * c_.patch * c_.patch;
    p.add("w_patch", {c_.hidden, values}, Init::normal(1 / std::sqrt(static_cast<double>(values))));
    if (c_.patch_bias) p.add("b_patch", {c_.hidden}, Init::zeros(), false);
    if (c_.pool == VitConfig::Pool::kClassToken) {
      p.add("class_token", {c_.hidden}, Init::normal(c_.init_std), false);
    }
    p.add("position", {c_.tokens(), c_.hidden}, Init::normal(c_.init_std), false);
    if (c_.pre_norm) declare_norm(p, "pre_norm", c_.hidden);
  }
  void forward(TapeBuilder& tape) const override {
    const Value patches =
        nn::flatten_frames(tape, nn::patchify(tape, tape.input("frames"), c_.patch));
    Value x = nn::linear(tape,
                         patches,
                         tape.parameter("w_patch"),
                         c_.patch_bias ? tape.parameter("b_patch") : Value{});
    if (tape.has_parameter("class_token")) {
      x = nn::prepend_token(tape, x, tape.parameter("class_token"));
    }
    x = nn::add_broadcast(tape, x, tape.parameter("position"), {1, 2});
    if (c_.pre_norm) {
      x = nn::layer_norm(
          tape, x, tape.parameter("pre_norm"), tape.parameter("pre_norm_bias"), c_.norm_eps);
    }
    tape.output("residual", x);
  }

 private:
  VitConfig c_;
};

// residual, delta [B, S, D] (delta is absent in the first) -> the same two.
class BodyBlock : public Block {
 public:
  explicit BodyBlock(VitConfig config) : c_(std::move(config)) {}
  std::string kind() const override {
    return format("vit.body h%lld gelu%d eps%.17g fp8:%d",
                  static_cast<long long>(c_.heads),
                  static_cast<int>(c_.gelu),
                  c_.norm_eps,
                  static_cast<int>(c_.fp8));
  }
  void declare(ParameterList& p) const override {
    const Init weight = Init::normal(c_.init_std);
    const Init residual =
        Init::normal(c_.init_std / std::sqrt(2.0 * static_cast<double>(c_.layers)));
    const auto dense = [&](const std::string& suffix, int64_t out, int64_t in, const Init& init) {
      p.add("w" + suffix, {out, in}, init);
      p.add("b" + suffix, {out}, Init::zeros(), false);
    };
    declare_norm(p, "attn_norm", c_.hidden);
    dense("qkv", 3 * c_.hidden, c_.hidden, weight);
    dense("o", c_.hidden, c_.hidden, residual);
    declare_norm(p, "mlp_norm", c_.hidden);
    dense("_up", c_.ffn, c_.hidden, weight);
    dense("_down", c_.hidden, c_.ffn, residual);
  }
  void forward(TapeBuilder& tape) const override {
    const auto dense = [&](const std::string& suffix, Value x) {
      return nn::linear(
          tape, x, tape.parameter("w" + suffix), tape.parameter("b" + suffix), c_.fp8);
    };
    nn::Residual x{tape.input("residual"), {}};
    const Value weight = tape.parameter("attn_norm"), bias = tape.parameter("attn_norm_bias");
    if (tape.has_input("delta")) {
      x = nn::add_layer_norm(tape, x.sum, tape.input("delta"), weight, bias, c_.norm_eps);
    } else {
      x.normed = nn::layer_norm(tape, x.sum, weight, bias, c_.norm_eps);
    }
    const nn::AttentionShape shape{c_.heads, c_.heads, c_.hidden / c_.heads};
    constexpr int kTokens = 1;
    const Value mixed =
        nn::attention(tape, dense("qkv", x.normed), shape, kTokens, /*causal=*/false);
    x = nn::add_layer_norm(tape,
                           x.sum,
                           dense("o", mixed),
                           tape.parameter("mlp_norm"),
                           tape.parameter("mlp_norm_bias"),
                           c_.norm_eps);
    tape.output("residual", x.sum);
    tape.output("delta", dense("_down", nn::gelu(tape, dense("_up", x.normed), c_.gelu)));
  }

 private:
  VitConfig c_;
};

// residual, delta [B, S, D], labels [B] -> loss [1]
class HeadBlock : public Block {
 public:
  explicit HeadBlock(VitConfig config) : c_(std::move(config)) {}
  std::string kind() const override {
    return format("vit.head pool%d eps%.17g", static_cast<int>(c_.pool), c_.norm_eps);
  }
  void declare(ParameterList& p) const override {
    declare_norm(p, "norm", c_.hidden);
    p.add("weight", {c_.classes, c_.hidden}, Init::normal(c_.init_std));
  }
  void forward(TapeBuilder& tape) const override {
    const Value normed = nn::add_layer_norm(tape,
                                            tape.input("residual"),
                                            tape.input("delta"),
                                            tape.parameter("norm"),
                                            tape.parameter("norm_bias"),
                                            c_.norm_eps)
                             .normed;
    const Value pooled = c_.pool == VitConfig::Pool::kClassToken ? nn::take_token(tape, normed, 0)
                                                                 : nn::mean_pool(tape, normed);
    tape.output(
        "loss",
        nn::linear_cross_entropy(tape, pooled, tape.parameter("weight"), tape.input("labels")));
  }

 private:
  VitConfig c_;
};

}  // namespace

Model build_vit(const VitConfig& config) {
  config.validate();
  Model model;
  model.description = format("vision transformer %s: %lld layers x %lld, %lld tokens",
                             config.name.c_str(),
                             static_cast<long long>(config.layers),
                             static_cast<long long>(config.hidden),
                             static_cast<long long>(config.tokens()));
  model.unit = "frames";
  model.add("stem", std::make_unique<StemBlock>(config), {{"frames", "batch.frames"}});
  std::string before = "stem";
  for (int64_t i = 0; i < config.layers; ++i) {
    std::vector<std::pair<std::string, PortSource>> inputs = {{"residual", before + ".residual"}};
    if (i > 0) inputs.push_back({"delta", before + ".delta"});
    before = "body." + number(i);
    model.add(before, std::make_unique<BodyBlock>(config), std::move(inputs));
  }
  model.add("head",
            std::make_unique<HeadBlock>(config),
            {{"residual", before + ".residual"},
             {"delta", before + ".delta"},
             {"labels", "batch.labels"}});
  model.add_loss("head.loss");
  model.add_result("loss", "head.loss");
  return model;
}

BatchTypes vit_batch(const VitConfig& config, int64_t micro_batch) {
  return {{"frames", {{micro_batch, 1, config.height, config.width, 3}, DType::kF32}},
          {"labels", {{micro_batch}, DType::kI32}}};
}

NameTable vit_clip_names(const VitConfig& c) {
  NameTable table;
  const std::string tower = "vision_model.";
  const int64_t d = c.hidden;
  const auto add = [&](const std::string& ours, const std::string& theirs, const Shape& shape) {
    table.push_back({ours, 0, shape[0], tower + theirs, shape, ExternalLayout::kSame});
  };
  const auto norm = [&](const std::string& ours, const std::string& theirs) {
    add(ours, theirs + ".weight", {d});
    add(ours + "_bias", theirs + ".bias", {d});
  };
  if (c.pool == VitConfig::Pool::kClassToken) {
    add("stem.class_token", "embeddings.class_embedding", {d});
  }
  table.push_back({"stem.w_patch",
                   0,
                   d,
                   tower + "embeddings.patch_embedding.weight",
                   {d, 3, c.patch, c.patch},
                   ExternalLayout::kConvPatch});
  if (c.patch_bias) add("stem.b_patch", "embeddings.patch_embedding.bias", {d});
  add("stem.position", "embeddings.position_embedding.weight", {c.tokens(), d});
  if (c.pre_norm) norm("stem.pre_norm", "pre_layrnorm");  // the misspelling is in the checkpoints
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = "body." + number(i) + ".";
    const std::string theirs = "encoder.layers." + number(i) + ".";
    const auto dense = [&](const std::string& suffix,
                           int64_t first,
                           const std::string& part,
                           int64_t out,
                           int64_t in) {
      table.push_back(
          {ours + "w" + suffix, first, out, tower + theirs + part + ".weight", {out, in}});
      table.push_back({ours + "b" + suffix, first, out, tower + theirs + part + ".bias", {out}});
    };
    norm(ours + "attn_norm", theirs + "layer_norm1");
    dense("qkv", 0, "self_attn.q_proj", d, d);
    dense("qkv", d, "self_attn.k_proj", d, d);
    dense("qkv", 2 * d, "self_attn.v_proj", d, d);
    dense("o", 0, "self_attn.out_proj", d, d);
    norm(ours + "mlp_norm", theirs + "layer_norm2");
    dense("_up", 0, "mlp.fc1", c.ffn, d);
    dense("_down", 0, "mlp.fc2", d, c.ffn);
  }
  norm("head.norm", "post_layernorm");
  return table;
}

}  // namespace vitrine
