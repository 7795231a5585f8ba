// How our parameters are called elsewhere: the table that import and export follow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/shape.h"

namespace vitrine {

// How the elements of an external tensor lie.
enum class ExternalLayout : uint8_t {
  kSame,       // row-major, as ours
  kConvPatch,  // convolution weight [D, C, P, P]; ours is [D, P * P * C] with columns (y, x, c)
};

// Rows [first_row, first_row + rows) of dimension 0 of our parameter `parameter` (full name) are
// the whole external tensor `external`.
struct ExternalName {
  std::string parameter;
  int64_t first_row = 0, rows = 0;
  std::string external;
  Shape external_shape;
  ExternalLayout layout = ExternalLayout::kSame;
};

using NameTable = std::vector<ExternalName>;

}  // namespace vitrine
