// Checks that the tests of operations share: tensors against an oracle's, and gradients to start
// from.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/op_runner.h"

namespace vitrine::test {

// Each tensor within `tolerance` of the oracle's largest value (OpCase::floor, roundings).
inline void expect_near(const OpCase& c,
                        const std::vector<Tensor>& got,
                        const std::vector<Tensor>& expected,
                        double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LT(relative_error(got[i].values(), expected[i].values(), c.floor),
              c.roundings * tolerance)
        << what << " " << i;
  }
}

inline std::vector<Tensor> output_gradients(const ForwardResult& forward) {
  std::vector<Tensor> dout;
  for (const Tensor& out : forward.out) {
    dout.emplace_back(out.type());
    dout.back().set(random_values(out.type().shape.elements(), 31 + dout.size()));
  }
  return dout;
}

}  // namespace vitrine::test
