// A comparison of two runs as text for logs.
#pragma once

#include <string>

#include "analysis/compare.h"

namespace vitrine {

// Summary first, then tables; of the long ones the `rows` largest differences. Plain ASCII, at most
// 100 characters a line.
std::string comparison_text(const Comparison& comparison, size_t rows = 10);

}  // namespace vitrine
