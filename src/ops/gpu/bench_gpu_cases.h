// The operations that the micro benchmark times, with their shapes.
#pragma once

#include <vector>

#include "ops/op.h"

namespace vitrine {

struct GpuOpCase {
  std::string op;
  Attrs attrs;
  std::vector<Shape> shapes;
  int ids = -1;  // the input that holds ids below `vocabulary`
  int64_t vocabulary = 0;
};

// A language model of Qwen2.5-1.5B's shapes, then a small world model's and a step of the world
// model `small`.
std::vector<GpuOpCase> gpu_op_cases();

}  // namespace vitrine
