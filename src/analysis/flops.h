// Floating-point operations of an operator by the shapes of its inputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

// A multiply-add is two. 0 = not known: another operator, shapes missing, or an output that inputs
// do not tell (a forward convolution's stride).
struct OperatorCost {
  double flops = 0;
  double bytes = 0;  // inputs and output once each, two bytes an element (types are not recorded)
};

// `shapes` as recorded: "[[4, 8], [], [8, 2]]"; a scalar, a list or None is "[]". Attention counts
// the whole square, also where a mask is causal, as model FLOPs are counted.
OperatorCost operator_cost(const std::string& name, const std::string& shapes);

// Dimensions of each input; empty when the text is no list of lists of numbers.
std::vector<std::vector<int64_t>> parse_shapes(const std::string& text);

}  // namespace vitrine
