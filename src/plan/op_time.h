// How long an operation of a tape takes on a card: roofline, with what shapes cost.
#pragma once

#include "machines/cluster.h"
#include "plan/cluster_strategy.h"
#include "plan/plan_ops.h"
#include "tape/tape.h"

namespace vitrine {

enum class OpClass : uint8_t { kMatmul, kAttention, kMemory };
constexpr int kOpClasses = 3;
const char* op_class_name(OpClass op_class);

// Nanoseconds on the card, launches left out.
struct OpTime {
  OpClass op_class = OpClass::kMemory;
  double forward_ns = 0, backward_input_ns = 0, backward_weight_ns = 0;
  int forward_launches = 0, backward_launches = 0;
  double forward_flops = 0, backward_flops = 0;  // executed, of matrix products and attention
};

// A card and a stack of software, with everything that does not depend on the operation.
struct CardModel {
  double flops_per_s = 0;         // peak of the matrix products' precision
  double narrow_flops_per_s = 0;  // peak of bf16 (attention, head) under fp8
  double bytes_per_s = 0;
  int multiprocessors = 0;
  Efficiency efficiency;
  bool narrow_products = false;  // fp8, fp4: operands are cast before each product
  bool current_scaling = false;  // and read once more for their scales
  bool cast_weights = false;     // weights too, for every pass: they come anew (ZeRO-3)
  bool own_engine = false;       // tapes say which products are in fp8
  bool swiglu_in_products = false;
  double metric_bytes = 0;  // of a logit, for metrics beside the loss
  bool eager_ring = false, fused_dispatch = false;
  int accumulate_bytes = 2;  // that a product writes (and reads) a gradient of a weight
  bool fused = true, fused_softmax = true;
  double attention_forward = 0.6, attention_backward = 0.5;  // of bf16's peak, fused attention
};
CardModel card_model(const Cluster& cluster, const ClusterStrategy& strategy);

// One matrix product [m, k] x [k, n], `batch` times. Tiles that are not full and a last wave that
// does not fill the card cost as full ones; short k costs the pipeline's filling.
double matmul_ns(
    const CardModel& card, double m, double n, double k, double batch = 1, bool narrow = false);
// One pass over `bytes`.
double memory_ns(const CardModel& card, double bytes);

// Whether a product's operands are cast to fp8 or fp4 before it.
bool product_in_fp8(const CardModel& card, const Tape& tape, const TapeNode& node);

OpTime op_time(const CardModel& card, const Tape& tape, const TapeNode& node);

}  // namespace vitrine
