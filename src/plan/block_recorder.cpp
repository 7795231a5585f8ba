// What a rank runs of each kind of block.
#include "plan/block_recorder.h"

#include <algorithm>

#include "plan/plan_ops.h"

namespace vitrine {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

// Declared where it is used first.
Value BlockRecorder::parameter(TapeBuilder& tape,
                               const std::string& name,
                               Shape shape,
                               bool expert) {
  if (tape.has_parameter(name)) return tape.parameter(name);
  (expert ? expert_parameters_ : parameters_) += shape.elements();
  return tape.declare_parameter({name, {std::move(shape), dtype_}, true});
}

template <typename F>
ShardBlock BlockRecorder::record(const std::string& name,
                                 std::vector<PortType> inputs,
                                 F&& forward) {
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

Value BlockRecorder::linear(
    TapeBuilder& tape, const std::string& name, Value x, int64_t out, bool bias) {
  const int64_t in = tape.shape(x)[-1];
  const Value w = parameter(tape, name, {out, in});
  const Value b = bias ? parameter(tape, name + "_bias", {out}) : Value{};
  return nn::linear(tape, x, w, b);
}

Value BlockRecorder::norm(TapeBuilder& tape,
                          const StackShape& k,
                          const std::string& name,
                          Value x) {
  const int64_t width = tape.shape(x)[-1];
  const Value w = parameter(tape, name, {width});
  if (!k.layer_norm && !s_.fused && !s_.fused_norm) return tape.apply("eager_rms_norm", {}, {x, w});
  if (!k.layer_norm) return nn::rms_norm(tape, x, w);
  return nn::layer_norm(tape, x, w, parameter(tape, name + "_bias", {width}));
}

nn::Residual BlockRecorder::add_norm(
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

Value BlockRecorder::enter(TapeBuilder& tape, Value x) {
  if (t_ == 1) return x;
  return tape.apply(
      split_ ? "tensor_gather" : "tensor_copy", {{"ranks", static_cast<double>(t_)}}, {x});
}

Value BlockRecorder::leave(TapeBuilder& tape, Value x) {
  if (t_ == 1) return x;
  return tape.apply(
      split_ ? "tensor_scatter" : "tensor_reduce", {{"ranks", static_cast<double>(t_)}}, {x});
}

Value BlockRecorder::act(TapeBuilder& tape, const StackShape& k, Value x) {
  if (k.gated && !s_.fused) return tape.apply("eager_swiglu", {}, {x});
  if (k.gated) return nn::swiglu(tape, x);
  return nn::gelu(tape, x, nn::GeluForm::kTanh);
}

Value BlockRecorder::attention(TapeBuilder& tape, const StackShape& k, Value normed) {
  if (k.kv_rank > 0) return latent_attention(tape, k, normed);
  const int64_t heads = k.heads / t_, kv = std::max<int64_t>(1, k.kv_heads / t_);
  const nn::AttentionShape shape{heads, kv, k.head_dim};
  Value qkv = linear(tape, "wqkv", enter(tape, normed), shape.packed(), k.qkv_bias);
  if (k.qk_norm) {
    const Value wq = parameter(tape, "q_norm", {k.head_dim});
    const Value wk = parameter(tape, "k_norm", {k.head_dim});
    // This engine turns what it norms in the same pass.
    const bool at_once = k.rotary && s_.own_engine;
    qkv = at_once ? nn::qk_norm_rotary(tape, qkv, wq, wk, shape, 1)
                  : nn::qk_norm(tape, qkv, wq, wk, shape);
    if (k.rotary && !at_once) qkv = nn::rotary(tape, qkv, shape, 1);
  } else if (k.rotary) {
    qkv = nn::rotary(tape, qkv, shape, 1);
  }
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

Value BlockRecorder::latent_attention(TapeBuilder& tape, const StackShape& k, Value normed) {
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

Value BlockRecorder::dense_mlp(
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

Value BlockRecorder::expert_mlp(TapeBuilder& tape, const StackShape& k, Value normed) {
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

ShardBlock BlockRecorder::layer(const StackShape& k,
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

ShardBlock BlockRecorder::embed(bool pictures) {
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

ShardBlock BlockRecorder::head() {
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

}  // namespace vitrine
