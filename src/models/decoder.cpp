// Blocks of the decoder, joined into a chain.
#include "models/decoder.h"

#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "nn/ops.h"

namespace vitrine {
namespace {

std::string number(int64_t value) { return std::to_string(value); }

// tokens [B, T] -> residual [B, T, D]
class EmbedBlock : public Block {
 public:
  explicit EmbedBlock(DecoderConfig config) : c_(std::move(config)) {}
  std::string kind() const override { return "decoder.embed"; }
  void declare(ParameterList& p) const override {
    p.add("table", {c_.vocab, c_.hidden}, Init::normal(c_.init_std));
  }
  void forward(TapeBuilder& tape) const override {
    tape.output("residual", nn::embedding(tape, tape.input("tokens"), tape.parameter("table")));
  }

 private:
  DecoderConfig c_;
};

// residual [B, T, D], delta [B, T, D] of the block before (absent in the first) -> the same two.
class DecoderBlock : public Block {
 public:
  explicit DecoderBlock(DecoderConfig config) : c_(std::move(config)) {}

  std::string kind() const override {
    return format("decoder.body h%lld g%lld d%lld theta%.17g eps%.17g fp8:%d",
                  static_cast<long long>(c_.heads),
                  static_cast<long long>(c_.kv_heads),
                  static_cast<long long>(c_.head_dim),
                  c_.rope_theta,
                  c_.rms_eps,
                  static_cast<int>(c_.fp8));
  }

  void declare(ParameterList& p) const override {
    const int64_t q = c_.heads * c_.head_dim, packed = q + 2 * c_.kv_heads * c_.head_dim;
    const Init weight = Init::normal(c_.init_std);
    const Init residual =
        Init::normal(c_.init_std / std::sqrt(2.0 * static_cast<double>(c_.layers)));
    p.add("attn_norm", {c_.hidden}, Init::constant(1), false);
    p.add("wqkv", {packed, c_.hidden}, weight);
    if (c_.qkv_bias) p.add("bqkv", {packed}, Init::zeros(), false);
    if (c_.qk_norm) {
      p.add("q_norm", {c_.head_dim}, Init::constant(1), false);
      p.add("k_norm", {c_.head_dim}, Init::constant(1), false);
    }
    p.add("wo", {c_.hidden, q}, residual);
    if (c_.o_bias) p.add("bo", {c_.hidden}, Init::zeros(), false);
    p.add("mlp_norm", {c_.hidden}, Init::constant(1), false);
    p.add("w_gate_up", {2 * c_.ffn, c_.hidden}, weight);
    if (c_.mlp_bias) p.add("b_gate_up", {2 * c_.ffn}, Init::zeros(), false);
    p.add("w_down", {c_.hidden, c_.ffn}, residual);
    if (c_.mlp_bias) p.add("b_down", {c_.hidden}, Init::zeros(), false);
  }

  void forward(TapeBuilder& tape) const override {
    const auto optional = [&](bool there, const char* name) {
      return there ? tape.parameter(name) : Value{};
    };
    nn::Residual in{tape.input("residual"), {}};
    const Value attn_norm = tape.parameter("attn_norm");
    if (tape.has_input("delta")) {
      in = nn::add_rms_norm(tape, in.sum, tape.input("delta"), attn_norm, c_.rms_eps);
    } else {
      in.normed = nn::rms_norm(tape, in.sum, attn_norm, c_.rms_eps);
    }
    const nn::AttentionShape shape{c_.heads, c_.kv_heads, c_.head_dim};
    constexpr int kTime = 1;
    const auto linear = [&](Value x, const char* weight, bool has_bias, const char* bias) {
      return nn::linear(tape, x, tape.parameter(weight), optional(has_bias, bias), c_.fp8);
    };
    Value qkv = linear(in.normed, "wqkv", c_.qkv_bias, "bqkv");
    if (c_.qk_norm) {
      qkv = nn::qk_norm_rotary(tape,
                               qkv,
                               tape.parameter("q_norm"),
                               tape.parameter("k_norm"),
                               shape,
                               kTime,
                               c_.rms_eps,
                               c_.rope_theta);
    } else {
      qkv = nn::rotary(tape, qkv, shape, kTime, c_.rope_theta);
    }
    const Value mixed = nn::attention(tape, qkv, shape, kTime, /*causal=*/true);
    const Value attended = linear(mixed, "wo", c_.o_bias, "bo");
    const nn::Residual mid =
        nn::add_rms_norm(tape, in.sum, attended, tape.parameter("mlp_norm"), c_.rms_eps);
    const bool fp8 = c_.fp8 != Fp8Linears::kOff;
    const Value gate_up = linear(mid.normed, "w_gate_up", c_.mlp_bias, "b_gate_up");
    const Value mlp = linear(nn::swiglu(tape, gate_up, fp8), "w_down", c_.mlp_bias, "b_down");
    // The sum of the two is left to the next block's norm: one pass over memory less.
    tape.output("residual", mid.sum);
    tape.output("delta", mlp);
  }

 private:
  DecoderConfig c_;
};

// residual, delta [B, T, D], targets [B, T] -> loss [1]
class HeadBlock : public Block {
 public:
  explicit HeadBlock(DecoderConfig config) : c_(std::move(config)) {}
  std::string kind() const override {
    return format("decoder.head eps%.17g chunk%lld%s%s",
                  c_.rms_eps,
                  static_cast<long long>(c_.loss_chunk_rows),
                  gradient_in_forward() ? " gradient" : "",
                  c_.with_hidden ? " hidden" : "");
  }
  void declare(ParameterList& p) const override {
    p.add("norm", {c_.hidden}, Init::constant(1), false);
    if (c_.tied_embeddings) {
      p.tie("weight", {c_.vocab, c_.hidden}, "embed.table");
    } else {
      p.add("weight", {c_.vocab, c_.hidden}, Init::normal(c_.init_std));
    }
  }
  void forward(TapeBuilder& tape) const override {
    const nn::Residual last = nn::add_rms_norm(
        tape, tape.input("residual"), tape.input("delta"), tape.parameter("norm"), c_.rms_eps);
    tape.output("loss",
                nn::linear_cross_entropy(tape,
                                         last.normed,
                                         tape.parameter("weight"),
                                         tape.input("targets"),
                                         c_.loss_chunk_rows,
                                         gradient_in_forward()));
    if (c_.with_hidden) tape.output("hidden", last.normed);
  }

 private:
  bool gradient_in_forward() const { return c_.loss_gradient_in_forward && c_.loss_chunk_rows > 0; }

  DecoderConfig c_;
};

}  // namespace

void DecoderConfig::validate() const {
  const std::pair<const char*, int64_t> counts[] = {{"vocab", vocab},
                                                    {"hidden", hidden},
                                                    {"layers", layers},
                                                    {"heads", heads},
                                                    {"kv_heads", kv_heads},
                                                    {"head_dim", head_dim},
                                                    {"ffn", ffn},
                                                    {"max_positions", max_positions}};
  for (const auto& [field, value] : counts) {
    if (value < 1)
      throw ConfigError(
          format("decoder: %s is at least 1, got %lld", field, static_cast<long long>(value)));
  }
  if (heads % kv_heads != 0) {
    throw ConfigError("decoder: heads (" + number(heads) + ") must be a multiple of kv_heads (" +
                      number(kv_heads) + "): each key head serves an equal number of query heads");
  }
  if (head_dim % 2 != 0) {
    throw ConfigError("decoder: head_dim is even (rotary turns pairs), got " + number(head_dim));
  }
  if (rms_eps <= 0 || rope_theta <= 0 || init_std < 0 || loss_chunk_rows < 0) {
    throw ConfigError(
        "decoder: rms_eps and rope_theta are positive, init_std and loss_chunk_rows not negative");
  }
}

Model build_decoder(const DecoderConfig& config, int64_t sequence_length) {
  config.validate();
  if (sequence_length < 1 || sequence_length > config.max_positions) {
    throw ConfigError("decoder: sequence_length is from 1 to max_positions (" +
                      number(config.max_positions) + "), got " + number(sequence_length));
  }
  Model model;
  model.description = format("decoder %s: %lld layers x %lld, vocabulary %lld",
                             config.name.c_str(),
                             static_cast<long long>(config.layers),
                             static_cast<long long>(config.hidden),
                             static_cast<long long>(config.vocab));
  model.unit = "tokens";
  model.units_per_sample = static_cast<double>(sequence_length);
  model.add("embed", std::make_unique<EmbedBlock>(config), {{"tokens", "batch.tokens"}});
  std::string before = "embed";
  for (int64_t i = 0; i < config.layers; ++i) {
    std::vector<std::pair<std::string, PortSource>> inputs = {{"residual", before + ".residual"}};
    if (i > 0) inputs.push_back({"delta", before + ".delta"});
    before = "body." + number(i);
    model.add(before, std::make_unique<DecoderBlock>(config), std::move(inputs));
  }
  model.add("head",
            std::make_unique<HeadBlock>(config),
            {{"residual", before + ".residual"},
             {"delta", before + ".delta"},
             {"targets", "batch.targets"}});
  model.add_loss("head.loss");
  model.add_result("loss", "head.loss");
  if (config.with_hidden) model.add_result("hidden", "head.hidden");
  return model;
}

BatchTypes decoder_batch(int64_t micro_batch, int64_t sequence_length) {
  const TensorType ids{{micro_batch, sequence_length}, DType::kI32};
  return {{"tokens", ids}, {"targets", ids}};
}

NameTable decoder_hf_names(const DecoderConfig& c) {
  NameTable table;
  const auto whole = [&](const std::string& ours, const std::string& theirs, const Shape& shape) {
    table.push_back({ours, 0, shape[0], theirs, shape, ExternalLayout::kSame});
  };
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  whole("embed.table", "model.embed_tokens.weight", {c.vocab, c.hidden});
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = "body." + number(i) + ".";
    const std::string theirs = "model.layers." + number(i) + ".";
    // Several external tensors one below the other in ours, as weights [rows, in] and biases
    // [rows].
    const auto stacked = [&](const char* weight,
                             const char* bias,
                             bool has_bias,
                             int64_t in,
                             std::initializer_list<std::pair<const char*, int64_t>> parts) {
      int64_t first = 0;
      for (const auto& [part, rows] : parts) {
        table.push_back({ours + weight, first, rows, theirs + part + ".weight", {rows, in}});
        if (has_bias) table.push_back({ours + bias, first, rows, theirs + part + ".bias", {rows}});
        first += rows;
      }
    };
    whole(ours + "attn_norm", theirs + "input_layernorm.weight", {c.hidden});
    stacked("wqkv",
            "bqkv",
            c.qkv_bias,
            c.hidden,
            {{"self_attn.q_proj", q}, {"self_attn.k_proj", kv}, {"self_attn.v_proj", kv}});
    if (c.qk_norm) {
      whole(ours + "q_norm", theirs + "self_attn.q_norm.weight", {c.head_dim});
      whole(ours + "k_norm", theirs + "self_attn.k_norm.weight", {c.head_dim});
    }
    stacked("wo", "bo", c.o_bias, q, {{"self_attn.o_proj", c.hidden}});
    whole(ours + "mlp_norm", theirs + "post_attention_layernorm.weight", {c.hidden});
    stacked("w_gate_up",
            "b_gate_up",
            c.mlp_bias,
            c.hidden,
            {{"mlp.gate_proj", c.ffn}, {"mlp.up_proj", c.ffn}});
    stacked("w_down", "b_down", c.mlp_bias, c.ffn, {{"mlp.down_proj", c.hidden}});
  }
  whole("head.norm", "model.norm.weight", {c.hidden});
  if (!c.tied_embeddings) whole("head.weight", "lm_head.weight", {c.vocab, c.hidden});
  return table;
}

}  // namespace vitrine
