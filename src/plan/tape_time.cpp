// Operations of a tape, one by one and in pairs.
#include "plan/tape_time.h"

#include <cmath>

namespace vitrine {
namespace {

// Smaller products are not worth a pair (ops/gpu/linear_swiglu.cpp).
constexpr double kLeastFlops = 1e9;

double real(int64_t value) { return static_cast<double>(value); }

const TensorType& type_of(const Tape& tape, int slot) {
  return tape.slots()[static_cast<size_t>(slot)].type;
}

bool pairs_well(const Tape& tape, const TapeNode& linear) {
  const TensorType &x = type_of(tape, linear.in[0]), &w = type_of(tape, linear.in[1]);
  return x.dtype == DType::kBF16 && w.dtype == DType::kBF16 && w.shape[0] % 8 == 0 &&
         w.shape[1] % 8 == 0 && 2 * real(x.shape.rows() * w.shape.elements()) >= kLeastFlops;
}

// Bytes of amax passes that a note spares.
double noted_ns(const CardModel& card, const Tape& tape, int slot) {
  return card.current_scaling ? memory_ns(card, 2 * real(type_of(tape, slot).shape.elements())) : 0;
}

}  // namespace

std::vector<OpTime> tape_times(const CardModel& card, const Tape& tape) {
  const std::vector<TapeNode>& nodes = tape.nodes();
  std::vector<OpTime> times;
  times.reserve(nodes.size());
  for (const TapeNode& node : nodes) times.push_back(op_time(card, tape, node));
  if (!card.own_engine) return times;
  for (size_t n = 0; n + 1 < nodes.size(); ++n) {
    const TapeNode &first = nodes[n], &second = nodes[n + 1];
    if (second.in.empty() || second.in[0] != first.out[0]) continue;
    const bool ends = first.op->name == "linear" && second.op->name == "swiglu";
    const bool begins = first.op->name == "swiglu" && second.op->name == "linear";
    if (!ends && !begins) continue;
    const TapeNode& product = ends ? first : second;
    OpTime &linear = times[ends ? n : n + 1], &swiglu = times[ends ? n + 1 : n];
    if (product_in_fp8(card, tape, product)) {
      // Forward its output is the second product's operand; backward its gradient is the first's.
      if (begins) linear.forward_ns -= noted_ns(card, tape, product.in[0]);
      if (ends && product.needs_backward)
        linear.backward_input_ns -= noted_ns(card, tape, product.out[0]);
    } else if (card.swiglu_in_products && pairs_well(tape, product)) {
      const bool bias = product.in.size() > 2 && product.in[2] >= 0;
      if (ends && !bias) {
        swiglu.forward_ns = 0;
        swiglu.forward_launches = 0;
      } else if (begins && swiglu.backward_launches > 0) {
        swiglu.backward_input_ns = std::hypot(linear.backward_input_ns, swiglu.backward_input_ns) -
                                   linear.backward_input_ns;
        swiglu.backward_launches = 0;
      }
    }
  }
  return times;
}

}  // namespace vitrine
