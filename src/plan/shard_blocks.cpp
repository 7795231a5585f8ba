// Tapes of one rank's blocks.
#include "plan/shard_blocks.h"

#include <algorithm>

#include "core/error.h"
#include "nn/ops.h"
#include "plan/plan_ops.h"
#include "plan/shard_engine.h"

namespace vitrine {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Records one block.
class Recorder {
 public:
  Recorder(const ModelShape& model, const ClusterStrategy& strategy)
      : m_(model),
        s_(strategy),
        t_(strategy.mesh.tensor),
        c_(strategy.mesh.context),
        split_(strategy.sequence_parallel && strategy.mesh.tensor > 1),
        dtype_(strategy.precision == Precision::kF32 ? DType::kF32 : DType::kBF16) {}

  ShardBlock embed(bool pictures);
  ShardBlock layer(const StackShape& stack, const std::string& name, int64_t tokens, bool experts);
  ShardBlock head();

 private:
  template <typename F>
  ShardBlock record(const std::string& name, std::vector<PortType> inputs, F&& forward);

  Value parameter(TapeBuilder& tape, const std::string& name, Shape shape, bool expert = false);
  Value norm(TapeBuilder& tape, const StackShape& k, const std::string& name, Value x);
  // sum and norm of x + delta: one pass where fused.
  nn::Residual add_norm(
      TapeBuilder& tape, const StackShape& k, const std::string& name, Value x, Value delta);
  Value linear(TapeBuilder& tape, const std::string& name, Value x, int64_t out, bool bias);
  // Around the products of a tensor group.
  Value enter(TapeBuilder& tape, Value x);
  Value leave(TapeBuilder& tape, Value x);
  Value attention(TapeBuilder& tape, const StackShape& k, Value normed);
  Value latent_attention(TapeBuilder& tape, const StackShape& k, Value normed);
  Value dense_mlp(
      TapeBuilder& tape, const StackShape& k, Value normed, int64_t ffn, const char* at);
  Value expert_mlp(TapeBuilder& tape, const StackShape& k, Value normed);
  Value act(TapeBuilder& tape, const StackShape& k, Value x);

  const ModelShape& m_;
  const ClusterStrategy& s_;
  int64_t t_, c_;
  bool split_;
  DType dtype_;
  int64_t parameters_ = 0, expert_parameters_ = 0;  // elements, of the block being recorded
};

// Declared where it is used first.
Value Recorder::parameter(TapeBuilder& tape, const std::string& name, Shape shape, bool expert) {
  if (tape.has_parameter(name)) return tape.parameter(name);
  (expert ? expert_parameters_ : parameters_) += shape.elements();
  return tape.declare_parameter({name, {std::move(shape), dtype_}, true});
}

template <typename F>
ShardBlock Recorder::record(const std::string& name, std::vector<PortType> inputs, F&& forward) {
  parameters_ = expert_parameters_ = 0;
  TapeBuilder tape(name, std::move(inputs), {});
  const Value out = forward(tape);
  ShardBlock block;
  block.name = name;
  block.output_bytes = tape.type(out).bytes();
  tape.output("out", out);
  block.parameters = parameters_;
  block.expert_parameters = expert_parameters_;
  block.tape = std::make_shared<const Tape>(tape.finish());
  return block;
}

Value Recorder::linear(
    TapeBuilder& tape, const std::string& name, Value x, int64_t out, bool bias) {
  const int64_t in = tape.shape(x)[-1];
  const Value w = parameter(tape, name, {out, in});
  const Value b = bias ? parameter(tape, name + "_bias", {out}) : Value{};
  return nn::linear(tape, x, w, b);
}

Value Recorder::norm(TapeBuilder& tape, const StackShape& k, const std::string& name, Value x) {
  const int64_t width = tape.shape(x)[-1];
  const Value w = parameter(tape, name, {width});
  if (!k.layer_norm && !s_.fused && !s_.fused_norm) return tape.apply("eager_rms_norm", {}, {x, w});
  if (!k.layer_norm) return nn::rms_norm(tape, x, w);
  return nn::layer_norm(tape, x, w, parameter(tape, name + "_bias", {width}));
}

nn::Residual Recorder::add_norm(
    TapeBuilder& tape, const StackShape& k, const std::string& name, Value x, Value delta) {
  if (k.dropout > 0) {
    const Value sum = tape.apply("add_dropout", {}, {delta, x});
    return {sum, norm(tape, k, name, sum)};
  }
  if (!s_.fused) {
    const Value sum = nn::add(tape, x, delta);
    return {sum, norm(tape, k, name, sum)};
  }
  const int64_t width = tape.shape(x)[-1];
  const Value w = parameter(tape, name, {width});
  if (!k.layer_norm) return nn::add_rms_norm(tape, x, delta, w);
  return nn::add_layer_norm(tape, x, delta, w, parameter(tape, name + "_bias", {width}));
}

Value Recorder::enter(TapeBuilder& tape, Value x) {
  if (t_ == 1) return x;
  return tape.apply(
      split_ ? "tensor_gather" : "tensor_copy", {{"ranks", static_cast<double>(t_)}}, {x});
}

Value Recorder::leave(TapeBuilder& tape, Value x) {
  if (t_ == 1) return x;
  return tape.apply(
      split_ ? "tensor_scatter" : "tensor_reduce", {{"ranks", static_cast<double>(t_)}}, {x});
}

Value Recorder::act(TapeBuilder& tape, const StackShape& k, Value x) {
  if (k.gated && !s_.fused) return tape.apply("eager_swiglu", {}, {x});
  if (k.gated) return nn::swiglu(tape, x);
  return nn::gelu(tape, x, nn::GeluForm::kTanh);
}

Value Recorder::attention(TapeBuilder& tape, const StackShape& k, Value normed) {
  if (k.kv_rank > 0) return latent_attention(tape, k, normed);
  const int64_t heads = k.heads / t_, kv = std::max<int64_t>(1, k.kv_heads / t_);
  const nn::AttentionShape shape{heads, kv, k.head_dim};
  Value qkv = linear(tape, "wqkv", enter(tape, normed), shape.packed(), k.qkv_bias);
  if (k.qk_norm) {
    qkv = nn::qk_norm(tape,
                      qkv,
                      parameter(tape, "q_norm", {k.head_dim}),
                      parameter(tape, "k_norm", {k.head_dim}),
                      shape);
  }
  if (k.rotary) qkv = nn::rotary(tape, qkv, shape, 1);
  const auto number = [](int64_t v) { return static_cast<double>(v); };
  const bool repeat = s_.repeat_kv && kv < heads;
  const int64_t seen = repeat ? heads : kv;  // key heads that attention sees
  if (repeat) qkv = tape.apply("pack", {{"width", number(3 * heads * k.head_dim)}}, {qkv});
  Value mixed;
  if (s_.flash_attention || c_ > 1) {
    mixed = tape.apply("flash_attention",
                       {{"heads", number(heads)},
                        {"kv_heads", number(seen)},
                        {"head_dim", number(k.head_dim)},
                        {"causal", k.causal ? 1.0 : 0.0},
                        {"context", number(c_)},
                        {"window", 0.0}},
                       {qkv});
  } else {
    mixed = tape.apply("scored_attention",
                       {{"heads", number(heads)},
                        {"kv_heads", number(seen)},
                        {"head_dim", number(k.head_dim)},
                        {"dropout", k.dropout},
                        {"eager", s_.fused || s_.fused_softmax ? 0.0 : 1.0}},
                       {qkv});
  }
  return leave(tape, linear(tape, "wo", mixed, k.hidden, k.o_bias));
}

Value Recorder::latent_attention(TapeBuilder& tape, const StackShape& k, Value normed) {
  const int64_t heads = k.heads / t_;
  const int64_t nope = k.head_dim, dq = nope + k.rope_head_dim;
  const auto number = [](int64_t v) { return static_cast<double>(v); };
  Value q = normed;
  if (k.q_rank > 0) q = norm(tape, k, "q_norm", linear(tape, "wq_a", q, k.q_rank, false));
  q = linear(tape, "wq_b", enter(tape, q), heads * dq, false);
  Value kv = linear(tape, "wkv_a", normed, k.kv_rank + k.rope_head_dim, false);
  kv = norm(tape, k, "kv_norm", kv);
  kv = linear(tape, "wkv_b", enter(tape, kv), heads * (nope + k.v_head_dim), false);
  const Value packed =
      tape.apply("pack", {{"width", number(heads * (2 * dq + k.v_head_dim))}}, {q, kv});
  const Value mixed = tape.apply("flash_attention",
                                 {{"heads", number(heads)},
                                  {"kv_heads", number(heads)},
                                  {"head_dim", number(dq)},
                                  {"v_head_dim", number(k.v_head_dim)},
                                  {"causal", 1.0},
                                  {"context", number(c_)}},
                                 {packed});
  return leave(tape, linear(tape, "wo", mixed, k.hidden, false));
}

Value Recorder::dense_mlp(
    TapeBuilder& tape, const StackShape& k, Value normed, int64_t ffn, const char* at) {
  const std::string name = at;
  const int64_t width = ceil_div(ffn, t_);
  Value active;
  if (k.gated && s_.gate_apart) {
    const Value gate = linear(tape, name + "_gate", enter(tape, normed), width, k.mlp_bias);
    const Value up = linear(tape, name + "_up", enter(tape, normed), width, k.mlp_bias);
    active = tape.apply("gated_product", {}, {gate, up});
  } else {
    const int64_t rows = (k.gated ? 2 : 1) * width;
    active = act(tape, k, linear(tape, name + "_up", enter(tape, normed), rows, k.mlp_bias));
  }
  return leave(tape, linear(tape, name + "_down", active, k.hidden, k.mlp_bias));
}

Value Recorder::expert_mlp(TapeBuilder& tape, const StackShape& k, Value normed) {
  const auto number = [](int64_t v) { return static_cast<double>(v); };
  const int64_t e = s_.expert, local = k.experts / e;
  const Value probs = tape.apply("router",
                                 {{"experts", number(k.experts)}},
                                 {normed, parameter(tape, "router", {k.experts, k.hidden})});
  // Experts are whole on a rank: with tensor parallelism each tensor rank routes its own part of
  // the tokens when the sequence is split, and all of them the same otherwise.
  const double rows = number(tape.shape(normed).rows() * k.experts_per_token) * s_.imbalance;
  const auto tokens = std::max<int64_t>(1, static_cast<int64_t>(rows));
  const Value sent = tape.apply(
      "dispatch",
      {{"ranks", number(e)}, {"tokens", number(tokens)}, {"copies", number(k.experts_per_token)}},
      {normed});
  const Value w_up =
      parameter(tape, "experts_up", {local, (k.gated ? 2 : 1) * k.expert_ffn, k.hidden}, true);
  const Value w_down = parameter(tape, "experts_down", {local, k.hidden, k.expert_ffn}, true);
  const Value up = tape.apply("grouped_linear", {{"groups", number(local)}}, {sent, w_up});
  const Value down =
      tape.apply("grouped_linear", {{"groups", number(local)}}, {act(tape, k, up), w_down});
  Value out = tape.apply("combine",
                         {{"ranks", number(e)}, {"copies", number(k.experts_per_token)}},
                         {down, probs, normed});
  if (k.shared_ffn > 0)
    out = nn::add(tape, out, dense_mlp(tape, k, normed, k.shared_ffn, "shared"));
  return out;
}

ShardBlock Recorder::layer(const StackShape& k,
                           const std::string& name,
                           int64_t tokens,
                           bool experts) {
  const int64_t rows = split_ ? tokens / t_ : tokens;
  std::vector<PortType> in = {{"x", {{s_.micro_batch, rows, k.hidden}, dtype_}, true}};
  if (k.cross_attention) {
    in.push_back({"context", {{s_.micro_batch, k.context_tokens, k.hidden}, dtype_}, false});
  }
  return record(name, in, [&](TapeBuilder& tape) {
    const Value x = tape.input("x");
    const Value normed = norm(tape, k, "norm1", x);
    const Value attended = attention(tape, k, normed);
    nn::Residual mid;
    if (k.parallel_block) {
      mid = {nn::add(tape, x, attended), normed};
    } else {
      mid = add_norm(tape, k, "norm2", x, attended);
    }
    if (k.cross_attention) {
      const auto number = [](int64_t v) { return static_cast<double>(v); };
      const int64_t heads = k.heads / t_;
      const Value q = linear(tape, "cross_q", enter(tape, mid.normed), heads * k.head_dim, true);
      const Value context =
          linear(tape, "cross_kv", tape.input("context"), 2 * heads * k.head_dim, true);
      const Value crossed = tape.apply("cross_attention",
                                       {{"heads", number(heads)},
                                        {"head_dim", number(k.head_dim)},
                                        {"keys", number(k.context_tokens)}},
                                       {q, context});
      const Value out = leave(tape, linear(tape, "cross_o", crossed, k.hidden, true));
      mid = add_norm(tape, k, "norm3", mid.sum, out);
    }
    const Value mlp =
        experts ? expert_mlp(tape, k, mid.normed) : dense_mlp(tape, k, mid.normed, k.ffn, "mlp");
    if (k.dropout > 0) return tape.apply("add_dropout", {}, {mlp, mid.sum});
    return nn::add(tape, mid.sum, mlp);
  });
}

ShardBlock Recorder::embed(bool pictures) {
  const int64_t tokens = s_.sequence / c_;
  const StackShape& k = m_.stack;
  const int64_t b = s_.micro_batch;
  if (pictures) {
    // Patches through one linear map, positions added.
    const StackShape& tower = m_.tower.layers > 0 ? m_.tower : m_.stack;
    const std::vector<PortType> in = {
        {"patches",
         {{b * m_.pictures_per_sample, m_.picture_patches, m_.patch_values}, dtype_},
         false}};
    return record("patches", in, [&](TapeBuilder& tape) {
      return linear(tape, "w_patch", tape.input("patches"), tower.hidden, true);
    });
  }
  const std::vector<PortType> in = {{"tokens", {{b, tokens}, DType::kI32}, false}};
  return record("embed", in, [&](TapeBuilder& tape) {
    Value x = nn::embedding(
        tape, tape.input("tokens"), parameter(tape, "table", {ceil_div(m_.vocab, t_), k.hidden}));
    if (m_.positions > 0) {
      const Value rows = parameter(tape, "positions", {m_.positions, k.hidden});
      x = tape.apply("add_rows", {}, {x, rows});
    }
    x = leave(tape, x);
    if (k.dropout > 0) x = tape.apply("dropout", {}, {x});
    return x;
  });
}

ShardBlock Recorder::head() {
  const StackShape& k = m_.stack;
  const int64_t tokens = s_.sequence / c_, rows = split_ ? tokens / t_ : tokens;
  const std::vector<PortType> in = {{"x", {{s_.micro_batch, rows, k.hidden}, dtype_}, true},
                                    {"targets", {{s_.micro_batch, tokens}, DType::kI32}, false}};
  ShardBlock block = record("head", in, [&](TapeBuilder& tape) {
    const Value normed = enter(tape, norm(tape, k, "norm", tape.input("x")));
    const Value w = parameter(tape, "weight", {ceil_div(m_.vocab, t_), k.hidden});
    return tape.apply("lm_loss",
                      {{"ranks", static_cast<double>(t_)},
                       {"chunk_rows", static_cast<double>(s_.loss_chunk_rows)},
                       {"form", static_cast<double>(s_.loss_form)}},
                      {normed, w, tape.input("targets")});
  });
  block.output_bytes = 0;
  if (m_.tied_embeddings) block.tied_parameters = ceil_div(m_.vocab, t_) * k.hidden;
  return block;
}

// Products and attention of a stack, a token, forward: 2 flops a multiply-add.
double layer_flops(const StackShape& k, double tokens, bool experts) {
  const auto d = [](int64_t v) { return static_cast<double>(v); };
  const double h = d(k.hidden);
  double flops = 0, width = 0;
  if (k.kv_rank > 0) {
    const double dq = d(k.head_dim + k.rope_head_dim), heads = d(k.heads);
    flops += k.q_rank > 0 ? 2 * (h * d(k.q_rank) + d(k.q_rank) * heads * dq) : 2 * h * heads * dq;
    flops += 2 * h * d(k.kv_rank + k.rope_head_dim);
    flops += 2 * d(k.kv_rank) * heads * d(k.head_dim + k.v_head_dim);
    flops += 2 * heads * d(k.v_head_dim) * h;
    width = heads * (dq + d(k.v_head_dim));
  } else {
    flops += 2 * h * d((k.heads + 2 * k.kv_heads) * k.head_dim) + 2 * d(k.heads * k.head_dim) * h;
    width = 2 * d(k.heads * k.head_dim);
  }
  flops += 2 * width * tokens * (k.causal ? 0.5 : 1.0);
  if (k.cross_attention) flops += 4 * h * h + 4 * h * d(k.context_tokens);
  const double matrices = k.gated ? 3 : 2;
  if (experts) {
    flops += 2 * matrices * h * d(k.experts_per_token * k.expert_ffn + k.shared_ffn);
    flops += 2 * h * d(k.experts);
  } else {
    flops += 2 * matrices * h * d(k.ffn);
  }
  return flops;
}

}  // namespace

ShardModel shard_model(const ModelShape& shape, const ClusterStrategy& strategy) {
  register_plan_ops();
  const bool whole = strategy.mesh.tensor == 1 && strategy.mesh.context == 1;
  if (!shape.engine_section.empty() && (whole || shape.family != "decoder")) {
    return engine_model(shape, strategy);
  }
  Recorder recorder(shape, strategy);
  ShardModel model;
  const auto add = [&](ShardBlock block, int64_t count) {
    if (count <= 0) return;
    const int kind = static_cast<int>(model.kinds.size());
    model.kinds.push_back(std::move(block));
    model.blocks.insert(model.blocks.end(), static_cast<size_t>(count), kind);
  };
  const auto real = [](int64_t v) { return static_cast<double>(v); };
  const double tokens = real(strategy.sequence);
  double flops = 0;
  if (shape.tower.layers > 0) {
    ShardBlock patches = recorder.embed(true);
    ClusterStrategy pictures = strategy;
    pictures.micro_batch = strategy.micro_batch * shape.pictures_per_sample;
    pictures.mesh.context = 1;
    Recorder tower(shape, pictures);
    ShardBlock layer = tower.layer(shape.tower, "tower", shape.picture_patches, false);
    if (shape.tower_frozen) {
      patches.frozen_parameters = patches.parameters;
      layer.frozen_parameters = layer.parameters;
      patches.trains = layer.trains = false;
    }
    add(std::move(patches), 1);
    add(std::move(layer), shape.tower.layers);
    const double seen = real(shape.picture_patches * shape.pictures_per_sample);
    flops += (shape.tower_frozen ? 1 : 3) * seen * real(shape.tower.layers) *
             layer_flops(shape.tower, real(shape.picture_patches), false);
  }
  const StackShape& k = shape.stack;
  const int64_t local = strategy.sequence / strategy.mesh.context;
  const bool words = shape.vocab > 0;
  if (words) {
    add(recorder.embed(false), 1);
  } else {
    add(recorder.embed(true), 1);
  }
  const int64_t expert_layers = k.experts > 0 ? k.layers - k.dense_layers : 0;
  const int64_t dense_layers = k.layers - expert_layers;
  if (dense_layers > 0) add(recorder.layer(k, "dense", local, false), dense_layers);
  if (expert_layers > 0) {
    add(recorder.layer(k, "experts", local, true), expert_layers + shape.next_token_layers);
  }
  flops += 3 * tokens *
           (real(dense_layers) * layer_flops(k, tokens, false) +
            real(expert_layers + (expert_layers > 0 ? shape.next_token_layers : 0)) *
                layer_flops(k, tokens, true));
  if (words) {
    add(recorder.head(), 1);
    flops +=
        3 * tokens * 2 * real(k.hidden) * real(shape.vocab) * real(1 + shape.next_token_layers);
  }
  model.tokens = strategy.sequence;
  model.model_flops = flops;
  return model;
}

}  // namespace vitrine
