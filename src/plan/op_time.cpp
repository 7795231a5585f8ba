// Roofline of single operations.
#include "plan/op_time.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "ops/fp8.h"

namespace vitrine {
namespace {

// Of the efficiency of large products: what fused attention kernels reach with a causal mask,
// forward and backward, by generation. FlashAttention-2's paper gives 1: 110-125, 2: 170-190 of 312
// TFLOP/s on A100 for both directions together; FlashAttention-3's and cuDNN 9's figures on H100
// are 450-550 of 989.
struct AttentionShare {
  double forward, backward;
};
constexpr AttentionShare kAttention[] = {{0.80, 0.65}, {0.58, 0.46}, {0.80, 0.68}, {0.80, 0.65}};
// Keys of a query that filling the pipeline of a fused attention kernel and the half of a tile
// beyond the diagonal are worth.
constexpr double kKeyFill = 192;
// Rows below which this engine does not take cuDNN's attention (ops/gpu/attention_cudnn.cpp).
constexpr int64_t kShortRows = 64;
// Small passes do not reach the bandwidth: bytes at which half of it is reached.
constexpr double kHalfBandwidthBytes = 2.0e6;

struct Tile {
  double m, n, share;  // share of the largest tile's efficiency
};
constexpr Tile kTiles[] = {{256, 128, 1.0},
                           {128, 256, 1.0},
                           {128, 128, 0.95},
                           {128, 64, 0.80},
                           {64, 128, 0.80},
                           {64, 64, 0.65}};

std::vector<TensorType> inputs_of(const Tape& tape, const TapeNode& node) {
  std::vector<TensorType> in;
  in.reserve(node.in.size());
  for (const int slot : node.in) {
    in.push_back(slot < 0 ? TensorType{} : tape.slots()[static_cast<size_t>(slot)].type);
  }
  return in;
}

double real(int64_t value) { return static_cast<double>(value); }

// What an operation costs that is made of single steps of a framework instead of one kernel: passes
// over memory against the fused form's, and kernels.
struct Eager {
  double passes = 1;
  int forward_kernels = 1, backward_kernels = 1;
};
Eager eager_of(const std::string& name, const CardModel& card) {
  // To fp32, square, mean, rsqrt, two products, back: 36 bytes an element for 4.
  if (name == "eager_rms_norm") return {9, 6, 10};
  if (name == "eager_swiglu") return {1.25, 3, 4};  // 5 half-width passes for the 4 counted
  // Counts of tokens, their order and the exchange's plan; the exchange itself. Fused: the notice
  // of counts, the exchange, the order by expert.
  if (name == "dispatch") return card.fused_dispatch ? Eager{1, 4, 2} : Eager{1, 10, 6};
  if (name == "combine") return card.fused_dispatch ? Eager{1, 2, 3} : Eager{1, 6, 6};
  if (card.fused) return {};
  // Halves of queries and keys cut, negated, joined, two products and a sum each.
  if (name == "rotary") return {3.3, 10, 10};
  if (name == "gated_product") return {1.25, 3, 4};
  if (name == "add") return {1.0, 1, 0};
  return {};
}

// Of a product's rate, what rows of half-precision elements reach whose lengths (in elements) are
// `a` and `b`: loads of 16 bytes need rows that are a multiple of them. Measured with cuBLAS 13 on
// an H200 at rows of 3,584 to 3,616 bytes.
double alignment_share(int64_t a, int64_t b) {
  if (a % 8 != 0 || b % 8 != 0) return 0.28;
  return a % 16 != 0 || b % 16 != 0 ? 0.92 : 1.0;
}

// Calls of the host for one expert's product in fp8: it, the cast of its operand, the order of its
// scales.
constexpr double kNarrowCalls = 3;

// Grouped products are a loop over experts on the host, at what an operation costs it each; fp8
// also casts every expert's operands, along both dimensions, and re-orders their scales.
void add_group_launches(const CardModel& card, double groups, bool back, OpTime& t) {
  const double each = card.narrow_products ? kNarrowCalls : 1;
  t.forward_launches += static_cast<int>(groups * each);
  if (back) t.backward_launches += static_cast<int>(2 * groups * each);
}

// Bytes an output element that the kernels around fused attention's backward move: outputs and
// their gradients read for the sums of their products, gradients of queries cleared, read and
// rounded from fp32; and, of keys and values that several query heads share, gradients by head.
double backward_passes(const TapeNode& node) {
  const double heads = node.attrs.number("heads");
  return node.attrs.number("kv_heads", heads) < heads ? 22 : 14;
}

// What a hop of a context ring adds to attention: partial outputs (and gradients of queries, keys
// and values) are summed in fp32.
void add_ring_merges(
    const CardModel& card, const TapeNode& node, const Shape& qkv, int context, OpTime& t) {
  const double width = node.attrs.number("head_dim");
  const double out = real(qkv[0] * qkv[1]) * node.attrs.number("heads") * width;
  const double kv = 2 * real(qkv[0] * qkv[1]) * node.attrs.number("kv_heads") * width;
  const double hops = context - 1;
  // Bytes an element: fused, read the sum and the part, write the sum. In single steps, forward:
  // the part to fp32 (6), difference (12), scaling (8), sum (12); keys and values joined for the
  // exchange (4). Backward: each sum of fp32 and half precision 10; of the hops half rewrite the
  // whole where a part changed (8); gradients of keys and values joined (8), and they themselves
  // (4).
  const bool steps = card.eager_ring && !card.fused;
  const double forward = steps ? 38 : 10, forward_kv = steps ? 4 : 0;
  const double backward = steps ? 14 : 10, backward_kv = steps ? 26 : 10;
  t.forward_ns += hops * memory_ns(card, out * forward + kv * forward_kv);
  t.forward_launches += static_cast<int>(hops) * (steps ? 8 : 2);
  if (t.backward_launches == 0) return;
  t.backward_input_ns += hops * memory_ns(card, out * backward + kv * backward_kv);
  t.backward_launches += static_cast<int>(hops) * (steps ? 10 : 3);
}

}  // namespace

const char* op_class_name(OpClass op_class) {
  switch (op_class) {
    case OpClass::kMatmul:
      return "matrix products";
    case OpClass::kAttention:
      return "attention";
    case OpClass::kMemory:
      return "memory-bound";
  }
  return "";
}

CardModel card_model(const Cluster& cluster, const ClusterStrategy& strategy) {
  const Precision precision = strategy.precision;
  const Accelerator& a = *cluster.card;
  CardModel card;
  const double half = a.bf16_flops_per_s > 0 ? a.bf16_flops_per_s : a.fp16_flops_per_s;
  card.narrow_flops_per_s = half;
  switch (precision) {
    case Precision::kF32:
      card.flops_per_s = a.fp32_flops_per_s;
      card.narrow_flops_per_s = a.fp32_flops_per_s;
      break;
    case Precision::kF16:
      card.flops_per_s = a.fp16_flops_per_s > 0 ? a.fp16_flops_per_s : half;
      break;
    case Precision::kBF16:
      card.flops_per_s = half;
      break;
    case Precision::kF8:
      card.flops_per_s = a.fp8_flops_per_s;
      card.narrow_products = true;
      break;
    case Precision::kF4:
      // The recipe keeps about 15 % of the linear layers (first and last ones) in bf16.
      if (a.fp4_flops_per_s > 0) {
        card.flops_per_s = 1 / (0.85 / a.fp4_flops_per_s + 0.15 / half);
      }
      card.narrow_products = true;
      break;
  }
  if (card.flops_per_s <= 0) {
    throw ConfigError(
        format("%s has no %s matrix products (or their rate is not known): choose "
               "another --precision, or give the rate in a profile",
               cluster.profile.c_str(),
               precision_name(precision)));
  }
  card.flops_per_s *= cluster.efficiency.power;
  card.narrow_flops_per_s *= cluster.efficiency.power;
  if (card.narrow_products && cluster.efficiency.narrow_share > 0) {
    card.flops_per_s *= cluster.efficiency.narrow_share;
  } else if (card.narrow_products && cluster.efficiency.narrow_ceiling > 0) {
    card.flops_per_s *= cluster.efficiency.narrow_ceiling / cluster.efficiency.ceiling;
  }
  card.own_engine = strategy.own_engine;
  card.swiglu_in_products = strategy.own_engine && cluster.efficiency.swiglu_in_products;
  // This engine takes scales of the tensor itself and rounds weights in every micro-batch.
  card.current_scaling = card.narrow_products && (strategy.current_scaling || strategy.own_engine);
  // Weights that are gathered in fp8 were rounded in shards.
  const bool gathered_wide = strategy.zero_stage >= 3 && !strategy.quantized_gather;
  card.cast_weights = card.narrow_products && (gathered_wide || strategy.own_engine);
  card.metric_bytes = strategy.metric_bytes;
  card.eager_ring = strategy.eager_ring;
  card.fused_dispatch = strategy.dispatcher == Dispatcher::kRanks;
  card.accumulate_bytes =
      strategy.accumulate_apart || strategy.accumulation() <= 1 ? 2 : strategy.accumulate_bytes;
  card.bytes_per_s = a.memory_bytes_per_s;
  card.multiprocessors = cluster.multiprocessors;
  card.efficiency = cluster.efficiency;
  card.fused = strategy.fused;
  card.fused_softmax = strategy.fused || strategy.fused_softmax;
  const AttentionShare share = kAttention[std::clamp(strategy.attention_generation, 0, 3)];
  const int generation = strategy.attention_generation;
  // Rates of kernels in a loop, of which training sustains what it does of products.
  const Efficiency& e = cluster.efficiency;
  const double sustained = e.ceiling > 0 ? std::min(1.0, e.matmul / e.ceiling) : 1;
  const double products = generation == 1 || generation == 2
                              ? std::min(e.matmul, e.older_instructions * sustained)
                              : e.matmul;
  card.attention_forward = share.forward * products;
  card.attention_backward = share.backward * products;
  return card;
}

double matmul_ns(const CardModel& card, double m, double n, double k, double batch, bool narrow) {
  const double peak =
      narrow ? card.flops_per_s : std::min(card.flops_per_s, card.narrow_flops_per_s);
  const double units = card.multiprocessors > 0 ? card.multiprocessors : 1;
  double best = 1e300;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * batch;
    double waves = tiles / units;
    if (card.multiprocessors > 0) {
      // A last wave that is not full runs faster than a full one, but not in proportion.
      const double full = std::floor(waves), rest = waves - full;
      waves = full + (rest > 0 ? 0.35 + 0.65 * rest : 0);
      if (full == 0) waves = 1;
    }
    const double flops = waves * units * tile.m * tile.n * 2 * (k + card.efficiency.fill);
    best = std::min(best, flops / (peak * card.efficiency.matmul * tile.share));
  }
  const double bytes = 2 * batch * (m * k + k * n + m * n);
  return std::max(best, bytes / (card.bytes_per_s * card.efficiency.memory)) * 1e9;
}

double memory_ns(const CardModel& card, double bytes) {
  if (bytes <= 0) return 0;
  return (bytes + kHalfBandwidthBytes) / (card.bytes_per_s * card.efficiency.memory) * 1e9;
}

bool product_in_fp8(const CardModel& card, const Tape& tape, const TapeNode& node) {
  if (!card.narrow_products) return false;
  if (!card.own_engine) return node.op->name == "linear" || node.op->name == "grouped_linear";
  const std::vector<TensorType> in = inputs_of(tape, node);
  return node.op->name == "linear" &&
         linear_in_fp8(node.attrs, in[0].shape, in[1].shape, in[0].dtype);
}

OpTime op_time(const CardModel& card, const Tape& tape, const TapeNode& node) {
  const std::vector<TensorType> in = inputs_of(tape, node);
  const std::string& name = node.op->name;
  const Cost forward = node.op->forward_cost(node.attrs, in);
  const Cost backward = node.op->backward_cost(node.attrs, in);
  const auto needs_grad = [&](size_t i) {
    return i < node.in.size() && node.in[i] >= 0 &&
           tape.slots()[static_cast<size_t>(node.in[i])].requires_grad;
  };
  OpTime t;
  t.forward_launches = 1;
  t.backward_launches = node.needs_backward ? 1 : 0;
  const bool back = node.needs_backward;
  if (name == "linear" || name == "grouped_linear" || name == "router" || name == "lm_loss" ||
      name == "linear_cross_entropy") {
    t.op_class = OpClass::kMatmul;
    double batch = 1, rows = real(in[0].shape.rows()), k = real(in[0].shape[-1]);
    double n = real(in[1].shape[name == "grouped_linear" ? 1 : 0]);
    if (name == "grouped_linear") {
      batch = node.attrs.number("groups");
      rows = std::max(1.0, rows / batch);
    }
    const bool narrow = product_in_fp8(card, tape, node);
    t.forward_ns = matmul_ns(card, rows, n, k, batch, narrow);
    t.forward_flops = 2 * rows * n * k * batch;
    // Vocabularies are padded, routers are small.
    const bool as_given = name == "linear" || name == "grouped_linear";
    const double slower =
        as_given ? 1 / alignment_share(in[0].shape[-1], static_cast<int64_t>(n)) : 1;
    t.forward_ns *= slower;
    if (back) {
      if (needs_grad(0)) t.backward_input_ns = slower * matmul_ns(card, rows, k, n, batch, narrow);
      if (needs_grad(1)) {
        const double bytes = batch * (2 * rows * (k + n) + n * k * card.accumulate_bytes);
        t.backward_weight_ns =
            std::max(slower * matmul_ns(card, n, k, rows, batch, narrow), memory_ns(card, bytes));
      }
      t.backward_launches = 2;
      t.backward_flops = t.forward_flops * ((needs_grad(0) ? 1 : 0) + (needs_grad(1) ? 1 : 0));
    }
    if (narrow) {
      // Both operands are read wide and written narrow; activations also transposed.
      const double x = rows * batch * k, y = rows * batch * n, w = batch * k * n;
      const double scale = card.current_scaling ? 2 : 0;
      t.forward_ns += memory_ns(card, x * (4 + scale));
      if (card.cast_weights) t.forward_ns += memory_ns(card, w * (4 + scale));
      t.forward_launches += 1;
      if (back) {
        t.backward_input_ns += memory_ns(card, y * (4 + scale));
        t.backward_launches += 1;
      }
    }
    if (name == "grouped_linear") add_group_launches(card, batch, back, t);
    if (name == "router") {  // softmax, the largest, their weights and the balancing loss
      t.forward_launches = 16;
      if (back) t.backward_launches = 12;
    }
    if (in.size() > 2 && name == "linear" && back) {
      t.backward_weight_ns += memory_ns(card, 2 * rows * n);
      t.backward_launches += 1;
    }
    if (name == "lm_loss" || name == "linear_cross_entropy") {
      const double seen = node.attrs.integer("form", 0) == 3 ? node.attrs.number("ranks", 1) : 1;
      const double logits = rows * n * seen;
      const double passes = card.fused ? 1.0 : 2.0;
      const bool chunked = node.attrs.integer("chunk_rows", 0) > 0;
      if (node.attrs.integer("form", 0) == 2 || name == "linear_cross_entropy") {
        // One kernel reads the logits; it, or a second, writes their gradient over them. In chunks
        // the gradient is made before they go, with its products.
        t.forward_ns += memory_ns(card, logits * 2);
        t.backward_input_ns += memory_ns(card, logits * 4);
      } else {
        t.forward_ns += memory_ns(card, logits * 10 * passes);
        t.backward_input_ns += memory_ns(card, logits * 8 * passes) + (chunked ? t.forward_ns : 0);
      }
      t.forward_ns += memory_ns(card, logits * card.metric_bytes);
      t.forward_launches += card.fused ? 2 : 8;
      t.backward_launches += card.fused ? 2 : 5;
    }
    return t;
  }
  if (name == "attention" || name == "flash_attention" || name == "cross_attention") {
    t.op_class = OpClass::kAttention;
    const double peak = card.narrow_flops_per_s;
    const double outputs = real(in[0].shape.rows()) * node.attrs.number("heads") *
                           node.attrs.number("v_head_dim", node.attrs.number("head_dim"));
    const double keys = forward.flops / (4 * outputs);
    // This engine's kernel for short rows keeps them in registers: one pass over memory.
    const bool short_rows = card.own_engine && name == "attention" &&
                            in[0].shape[static_cast<int>(node.attrs.integer("axis"))] < kShortRows;
    const double fill = short_rows ? 1 : (keys + kKeyFill) / keys;
    t.forward_ns = std::max(forward.flops * fill / (peak * card.attention_forward) * 1e9,
                            memory_ns(card, forward.bytes));
    t.forward_flops = forward.flops;
    if (back) {
      t.backward_input_ns = std::max(backward.flops * fill / (peak * card.attention_backward) * 1e9,
                                     memory_ns(card, backward.bytes)) +
                            (short_rows ? 0 : memory_ns(card, outputs * backward_passes(node)));
      t.backward_flops = backward.flops;
      t.backward_launches = 3;
    }
    const auto context = static_cast<int>(node.attrs.integer("context", 1));
    if (context > 1) add_ring_merges(card, node, in[0].shape, context, t);
    return t;
  }
  if (name == "scored_attention") {
    t.op_class = OpClass::kAttention;
    const Shape& s = in[0].shape;
    const double heads = real(s[0] * node.attrs.integer("heads")), length = real(s[1]);
    const double d = node.attrs.number("head_dim");
    const double slower = 1 / alignment_share(node.attrs.integer("head_dim"), s[1]);
    const double scores = slower * matmul_ns(card, length, length, d, heads);
    const double mixed = slower * matmul_ns(card, length, d, length, heads);
    // Without a fused kernel: scaled, masked, to fp32, softmax, back.
    const double passes = card.fused_softmax ? 1.0 : 4.0;
    t.forward_ns = scores + mixed + memory_ns(card, forward.bytes * passes);
    t.forward_flops = forward.flops;
    t.forward_launches = card.fused_softmax ? 4 : 8;
    if (back) {
      t.backward_input_ns = 2 * (scores + mixed) + memory_ns(card, backward.bytes * passes);
      t.backward_flops = backward.flops;
      t.backward_launches = card.fused_softmax ? 7 : 12;
    }
    return t;
  }
  if (name.starts_with("tensor_")) {
    // A collective is issued through more layers of the framework than a kernel.
    t.forward_launches = name == "tensor_copy" ? 0 : 2;
    t.backward_launches = back && name != "tensor_reduce" ? 2 : 0;
    return t;
  }
  const Eager eager = eager_of(name, card);
  t.forward_launches = eager.forward_kernels;
  if (back) t.backward_launches = eager.backward_kernels;
  t.forward_ns = memory_ns(card, forward.bytes * eager.passes);
  if (back) t.backward_input_ns = memory_ns(card, backward.bytes * eager.passes);
  // Adding a gradient to the residual stream's costs one pass in backward only where it is not
  // fused; `add` itself moves nothing backward.
  if (name == "add") {
    t.backward_input_ns = card.fused ? 0 : t.backward_input_ns;
    t.backward_launches = card.fused ? 0 : t.backward_launches;
  }
  return t;
}

}  // namespace vitrine
