// Contracts of the mean losses between two tensors: mse, l1.
#include "ops/contracts.h"

namespace vitrine::contracts {
namespace {

constexpr char kMse[] = "mse", kL1[] = "l1";

template <const char* Name>
OpSignature infer(const Attrs&, Types in) {
  check_count(Name, in, 2, 2);
  check_floating(Name, in);
  check_shape(Name, "target", in[1].shape, in[0].shape);
  if (in[0].shape.elements() == 0)
    fail(Name, "the mean of an empty tensor " + in[0].shape.str() + " is undefined");
  return {.out = {{Shape{1}, wide(in[0].dtype)}}, .saved = {}};
}

template <const char* Name>
Cost forward_cost(const Attrs& attrs, Types in) {
  return {3 * element_count(in[0]), forward_bytes(infer<Name>(attrs, in), in), false};
}

template <const char* Name>
Cost backward_cost(const Attrs& attrs, Types in) {
  return {
      3 * element_count(in[0]), backward_bytes(find_op(Name), infer<Name>(attrs, in), in), false};
}

}  // namespace

std::vector<OpDef> loss_ops() {
  return {
      {kMse, 2, 2, 0b11, 0b11, 0, infer<kMse>, forward_cost<kMse>, backward_cost<kMse>},
      {kL1, 2, 2, 0b11, 0b11, 0, infer<kL1>, forward_cost<kL1>, backward_cost<kL1>},
  };
}

}  // namespace vitrine::contracts
