// Which operations at which shapes calibration times.
#pragma once

#include <vector>

#include "ops/cpu/op_operands.h"

namespace vitrine {

// Every built-in operation over a grid of shapes, from those of models of a few hundred thousand
// parameters to those of a few hundred million. `quick`: about a third of them.
std::vector<OpCase> calibration_cases(bool quick);

}  // namespace vitrine
