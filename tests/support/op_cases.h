// One table of cases for every operation, shared by the Jacobian, backend and golden tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "ops/op.h"

namespace vitrine::test {

struct OpCase {
  std::string op;
  Attrs attrs;
  std::vector<Shape> shapes;
  int64_t vocabulary = 0;     // ids and targets are drawn below this
  bool ignored_rows = false;  // some targets are negative
  // Errors are relative to the largest value of a tensor, or to this where it is larger: the
  // gradient of a norm over one element is a difference of equal numbers.
  double floor = 1e-6;
  // Tolerances are taken this many times: 2 where a gradient is rounded, saved, scaled and rounded
  // again.
  double roundings = 1;

  std::string label() const;  // "linear [3, 5] [4, 5]"
  bool is_ids(size_t input) const;
  std::vector<TensorType> types(DType dtype) const;
};

// What GoogleTest prints of a case.
inline void PrintTo(const OpCase& c, std::ostream* out) { *out << c.label(); }

// Few elements: every one is differentiated numerically.
std::vector<OpCase> small_op_cases();
// Sizes that reach tiles, threads and the remainders of vectors.
std::vector<OpCase> large_op_cases();

}  // namespace vitrine::test
