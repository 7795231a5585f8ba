// Blocks of the world model, and their unrolling over rollout steps.
#include "models/world_model.h"

#include <cmath>

#include "core/format.h"
#include "models/tied_twin.h"
#include "nn/ops.h"

namespace vitrine {
namespace {

using Config = WorldModelConfig;

std::string number(int64_t value) { return std::to_string(value); }

// Of hidden states [B, T, S, D].
constexpr int kTimeAxis = 1, kSpaceAxis = 2;

Init fan_in_init(int64_t fan_in) {
  return Init::normal(1 / std::sqrt(static_cast<double>(fan_in)));
}

// frames [B, T + k, Y, X, 3] -> window [B, T, S, C], target.j [B, T, S, C] for each pass j
class EncodeBlock : public Block {
 public:
  explicit EncodeBlock(Config config) : c_(std::move(config)) {}
  std::string kind() const override {
    return "world_model.encode p" + number(c_.patch) + " t" + number(c_.window) + " k" +
           number(c_.rollout_steps);
  }
  void declare(ParameterList&) const override {}
  void forward(TapeBuilder& tape) const override {
    const Value z = nn::patchify(tape, tape.input("frames"), c_.patch);
    tape.output("window", nn::time_slice(tape, z, 0, c_.window));
    for (int64_t j = 0; j < c_.rollout_steps; ++j) {
      tape.output("target." + number(j), nn::time_slice(tape, z, j + 1, c_.window));
    }
  }

 private:
  Config c_;
};

// window [B, T, S, C], actions [B, T + k] -> residual [B, T, S, D]
class StemBlock : public Block {
 public:
  StemBlock(Config config, int64_t pass) : c_(std::move(config)), pass_(pass) {}

  std::string kind() const override {
    return "world_model.stem pass" + number(pass_) + " t" + number(c_.window);
  }

  void declare(ParameterList& p) const override {
    int64_t values = c_.patch_values();
    if (c_.encoder == Config::Encoder::kLinear) {
      p.add("w_encode", {c_.encoder_width, values}, fan_in_init(values));
      p.add("b_encode", {c_.encoder_width}, Init::zeros(), false);
      values = c_.encoder_width;
    }
    p.add("w_in", {c_.hidden, 2 * values}, fan_in_init(2 * values));
    p.add("position_space", {c_.patches(), c_.hidden}, Init::normal(c_.init_std), false);
    if (c_.positions == Config::Positions::kLearned) {
      p.add("position_time", {c_.window, c_.hidden}, Init::normal(c_.init_std), false);
    }
    p.add("actions", {c_.action_count, c_.hidden}, Init::normal(c_.init_std));
  }

  void forward(TapeBuilder& tape) const override {
    Value features = tape.input("window");
    if (tape.has_parameter("w_encode")) {
      features = nn::gelu(
          tape, nn::linear(tape, features, tape.parameter("w_encode"), tape.parameter("b_encode")));
    }
    // The difference to the frame before gives the first layer velocities.
    Value x = nn::linear(tape, nn::frame_difference(tape, features), tape.parameter("w_in"));
    x = nn::add_broadcast(tape, x, tape.parameter("position_space"), {2, 3});
    if (tape.has_parameter("position_time")) {
      x = nn::add_broadcast(tape, x, tape.parameter("position_time"), {1, 3});
    }
    // Position t holds frame t + pass, which action t + pass drives to the frame to be predicted.
    const Value actions = nn::embedding(tape, tape.input("actions"), tape.parameter("actions"));
    const Value driving = nn::time_slice(tape, actions, pass_, c_.window);
    tape.output("residual", nn::add_broadcast(tape, x, driving, {0, 1, 3}));
  }

 private:
  Config c_;
  int64_t pass_;
};

// residual, delta [B, T, S, D] (delta is absent in the first) -> the same two.
class SpaceTimeBlock : public Block {
 public:
  explicit SpaceTimeBlock(Config config) : c_(std::move(config)) {}

  std::string kind() const override {
    return format("world_model.body h%lld d%lld rope%d eps%.17g fp8:%d",
                  static_cast<long long>(c_.heads),
                  static_cast<long long>(c_.head_dim),
                  c_.positions == Config::Positions::kRope,
                  c_.rms_eps,
                  static_cast<int>(c_.fp8));
  }

  void declare(ParameterList& p) const override {
    const int64_t inner = c_.heads * c_.head_dim;
    const Init weight = Init::normal(c_.init_std);
    const Init residual =
        Init::normal(c_.init_std / std::sqrt(3.0 * static_cast<double>(c_.layers)));
    for (const std::string axis : {"space", "time"}) {
      p.add(axis + "_norm", {c_.hidden}, Init::constant(1), false);
      p.add(axis + "_wqkv", {3 * inner, c_.hidden}, weight);
      if (c_.qk_norm) {
        p.add(axis + "_q_norm", {c_.head_dim}, Init::constant(1), false);
        p.add(axis + "_k_norm", {c_.head_dim}, Init::constant(1), false);
      }
      p.add(axis + "_wo", {c_.hidden, inner}, residual);
    }
    p.add("mlp_norm", {c_.hidden}, Init::constant(1), false);
    p.add("w_gate_up", {2 * c_.ffn, c_.hidden}, weight);
    p.add("w_down", {c_.hidden, c_.ffn}, residual);
  }

  void forward(TapeBuilder& tape) const override {
    nn::Residual x{tape.input("residual"), {}};
    const Value first_norm = tape.parameter("space_norm");
    if (tape.has_input("delta")) {
      x = nn::add_rms_norm(tape, x.sum, tape.input("delta"), first_norm, c_.rms_eps);
    } else {
      x.normed = nn::rms_norm(tape, x.sum, first_norm, c_.rms_eps);
    }
    const Value space = attend(tape, x.normed, "space", kSpaceAxis, /*causal=*/false);
    x = nn::add_rms_norm(tape, x.sum, space, tape.parameter("time_norm"), c_.rms_eps);
    const Value time = attend(tape, x.normed, "time", kTimeAxis, /*causal=*/true);
    x = nn::add_rms_norm(tape, x.sum, time, tape.parameter("mlp_norm"), c_.rms_eps);
    const Value gate_up = linear(tape, x.normed, "w_gate_up");
    tape.output("residual", x.sum);
    tape.output("delta",
                linear(tape, nn::swiglu(tape, gate_up, c_.fp8 != Fp8Linears::kOff), "w_down"));
  }

 private:
  Value linear(TapeBuilder& tape, Value x, const std::string& weight) const {
    return nn::linear(tape, x, tape.parameter(weight), {}, c_.fp8);
  }

  Value attend(TapeBuilder& tape, Value x, const std::string& name, int axis, bool causal) const {
    const nn::AttentionShape shape{c_.heads, c_.heads, c_.head_dim};
    Value qkv = linear(tape, x, name + "_wqkv");
    const bool turned = axis == kTimeAxis && c_.positions == Config::Positions::kRope;
    if (c_.qk_norm) {
      const Value wq = tape.parameter(name + "_q_norm"), wk = tape.parameter(name + "_k_norm");
      qkv = turned ? nn::qk_norm_rotary(tape, qkv, wq, wk, shape, axis, c_.rms_eps)
                   : nn::qk_norm(tape, qkv, wq, wk, shape, c_.rms_eps);
    } else if (turned) {
      qkv = nn::rotary(tape, qkv, shape, axis);
    }
    return linear(tape, nn::attention(tape, qkv, shape, axis, causal), name + "_wo");
  }

  Config c_;
};

// residual, delta [B, T, S, D], window [B, T, S, C] -> prediction [B, T, S, C] of the next frames
class PredictBlock : public Block {
 public:
  explicit PredictBlock(Config config) : c_(std::move(config)) {}
  std::string kind() const override { return format("world_model.predict eps%.17g", c_.rms_eps); }
  void declare(ParameterList& p) const override {
    p.add("norm", {c_.hidden}, Init::constant(1), false);
    p.add("w_out", {c_.patch_values(), c_.hidden}, Init::zeros());
    if (c_.head == Config::Head::kGatedSigmoid) {
      p.add("gain", {c_.patch_values()}, Init::constant(6), false);
      p.add("offset", {c_.patch_values()}, Init::zeros(), false);
    }
  }
  void forward(TapeBuilder& tape) const override {
    const Value normed =
        nn::add_rms_norm(
            tape, tape.input("residual"), tape.input("delta"), tape.parameter("norm"), c_.rms_eps)
            .normed;
    Value z =
        nn::add(tape, tape.input("window"), nn::linear(tape, normed, tape.parameter("w_out")));
    if (tape.has_parameter("gain")) {
      z = nn::gated_sigmoid(tape, z, tape.parameter("gain"), tape.parameter("offset"));
    }
    tape.output("prediction", z);
  }

 private:
  Config c_;
};

// prediction, target [B, T, S, C] -> loss [1]
class LossBlock : public Block {
 public:
  std::string kind() const override { return "world_model.loss"; }
  void declare(ParameterList&) const override {}
  void forward(TapeBuilder& tape) const override {
    tape.output("loss", nn::mse(tape, tape.input("prediction"), tape.input("target")));
  }
};

// prediction [B, T, S, C] -> frames [B, T, Y, X, 3]
class PictureBlock : public Block {
 public:
  explicit PictureBlock(Config config) : c_(std::move(config)) {}
  std::string kind() const override {
    return "world_model.picture p" + number(c_.patch) + " y" + number(c_.height) + " x" +
           number(c_.width);
  }
  void declare(ParameterList&) const override {}
  void forward(TapeBuilder& tape) const override {
    tape.output("frames",
                nn::unpatchify(tape, tape.input("prediction"), c_.patch, c_.height, c_.width));
  }

 private:
  Config c_;
};

// window, prediction [B, T, S, C] -> window [B, T, S, C] one frame later
class WindowBlock : public Block {
 public:
  std::string kind() const override { return "world_model.window"; }
  void declare(ParameterList&) const override {}
  void forward(TapeBuilder& tape) const override {
    tape.output("window", nn::shift_window(tape, tape.input("window"), tape.input("prediction")));
  }
};

// Adds pass `pass`, which reads `window`; returns the name of its predict block.
std::string add_pass(Model& model, const Config& config, int64_t pass, const std::string& window) {
  const std::string suffix = pass == 0 ? "" : "@" + number(pass);
  const auto add = [&](const std::string& name,
                       std::unique_ptr<Block> block,
                       std::vector<std::pair<std::string, PortSource>> inputs) {
    if (pass > 0) block = std::make_unique<TiedTwin>(std::move(block), name);
    model.add(name + suffix, std::move(block), std::move(inputs));
    return name + suffix;
  };
  std::string before = add("stem",
                           std::make_unique<StemBlock>(config, pass),
                           {{"window", window}, {"actions", "batch.actions"}});
  for (int64_t i = 0; i < config.layers; ++i) {
    std::vector<std::pair<std::string, PortSource>> inputs = {{"residual", before + ".residual"}};
    if (i > 0) inputs.push_back({"delta", before + ".delta"});
    before = add("body." + number(i), std::make_unique<SpaceTimeBlock>(config), std::move(inputs));
  }
  const std::string predict =
      add("predict",
          std::make_unique<PredictBlock>(config),
          {{"residual", before + ".residual"}, {"delta", before + ".delta"}, {"window", window}});
  const std::string loss =
      add("loss",
          std::make_unique<LossBlock>(),
          {{"prediction", predict + ".prediction"}, {"target", "encode.target." + number(pass)}});
  const double later = config.rollout_weight;
  const double sum = 1 + later * static_cast<double>(config.rollout_steps - 1);
  model.add_loss(loss + ".loss", (pass == 0 ? 1 : later) / sum);
  return predict;
}

}  // namespace

Model build_world_model(const WorldModelConfig& given) {
  given.validate();
  WorldModelConfig config = given;
  if (config.init_std == 0) config.init_std = std::sqrt(0.4 / static_cast<double>(config.hidden));
  if (config.encoder_width == 0) config.encoder_width = config.hidden;

  Model model;
  model.description = format("world model %s: %lld layers x %lld, %lld x %lld frames, window %lld",
                             config.name.c_str(),
                             static_cast<long long>(config.layers),
                             static_cast<long long>(config.hidden),
                             static_cast<long long>(config.height),
                             static_cast<long long>(config.width),
                             static_cast<long long>(config.window));
  model.unit = "frames";
  model.units_per_sample = static_cast<double>(config.window);
  model.add("encode", std::make_unique<EncodeBlock>(config), {{"frames", "batch.frames"}});
  std::string window = "encode.window";
  std::string predict = add_pass(model, config, 0, window);
  model.add("picture",
            std::make_unique<PictureBlock>(config),
            {{"prediction", PortSource("predict.prediction", /*detached=*/true)}});
  for (int64_t pass = 1; pass < config.rollout_steps; ++pass) {
    const std::string name = "window@" + number(pass);
    model.add(name,
              std::make_unique<WindowBlock>(),
              {{"window", window}, {"prediction", predict + ".prediction"}});
    window = name + ".window";
    predict = add_pass(model, config, pass, window);
  }
  model.add_result("prediction", "picture.frames");
  model.add_result("patches", "predict.prediction");
  model.add_result("loss", "loss.loss");
  return model;
}

BatchTypes world_model_batch(const WorldModelConfig& config, int64_t micro_batch) {
  const int64_t frames = config.clip_frames();
  return {{"frames", {{micro_batch, frames, config.height, config.width, 3}, DType::kF32}},
          {"actions", {{micro_batch, frames}, DType::kI32}}};
}

}  // namespace vitrine
