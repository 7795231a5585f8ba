// Floating-point operations by hand.
#include "analysis/flops.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

TEST(Flops, OfMatrixProducts) {
  EXPECT_DOUBLE_EQ(operator_cost("aten::mm", "[[4, 8], [8, 2]]").flops, 128);
  EXPECT_DOUBLE_EQ(operator_cost("aten::mm", "[[4, 8], [8, 2]]").bytes, 2.0 * (32 + 16 + 8));
  EXPECT_DOUBLE_EQ(operator_cost("aten::addmm", "[[2], [4, 8], [8, 2], [], []]").flops, 128);
  EXPECT_DOUBLE_EQ(operator_cost("aten::bmm", "[[3, 4, 8], [3, 8, 2]]").flops, 384);
  EXPECT_DOUBLE_EQ(operator_cost("aten::baddbmm", "[[], [3, 4, 8], [3, 8, 2]]").flops, 384);
  EXPECT_DOUBLE_EQ(operator_cost("aten::linear", "[[5, 4, 8], [2, 8], [2]]").flops, 640);
}

TEST(Flops, OfAttentionAndItsBackward) {
  // Batch 2, 3 heads, 4 queries, 5 keys, width 8: two products of 2 x 3 x 4 x 5 x 8.
  EXPECT_DOUBLE_EQ(operator_cost("aten::_scaled_dot_product_flash_attention",
                                 "[[2, 3, 4, 8], [2, 3, 5, 8], [2, 3, 5, 8], [], [], []]")
                       .flops,
                   2.0 * 2 * 2 * 3 * 4 * 5 * 8);
  EXPECT_DOUBLE_EQ(operator_cost("aten::_scaled_dot_product_flash_attention_backward",
                                 "[[2, 3, 4, 8], [2, 3, 4, 8], [2, 3, 5, 8], [2, 3, 5, 8], []]")
                       .flops,
                   5.0 * 2 * 2 * 3 * 4 * 5 * 8);
}

TEST(Flops, OfAttentionWithHeadsAfterTheSequence) {
  EXPECT_DOUBLE_EQ(operator_cost("aten::_flash_attention_backward",
                                 "[[2, 4, 3, 8], [2, 4, 3, 8], [2, 5, 3, 8], [2, 5, 3, 8], []]")
                       .flops,
                   5.0 * 2 * 2 * 3 * 4 * 5 * 8);
  EXPECT_DOUBLE_EQ(operator_cost("aten::_cudnn_attention_backward",
                                 "[[2, 3, 4, 8], [2, 3, 4, 8], [2, 3, 5, 8], [2, 3, 5, 8], []]")
                       .flops,
                   5.0 * 2 * 2 * 3 * 4 * 5 * 8);
}

TEST(Flops, OfConvolutionsBackwardWhereTheOutputIsKnown) {
  // Output 2 x 4 x 6 x 6, weight 4 x 3 x 3 x 3: input's and weight's gradient.
  EXPECT_DOUBLE_EQ(operator_cost("aten::convolution_backward",
                                 "[[2, 4, 6, 6], [2, 3, 8, 8], [4, 3, 3, 3], [], []]")
                       .flops,
                   2 * 2.0 * (2 * 4 * 6 * 6) * (3 * 3 * 3));
  EXPECT_EQ(operator_cost("aten::convolution", "[[2, 3, 8, 8], [4, 3, 3, 3], [4]]").flops, 0);
}

TEST(Flops, AreNotKnownForOtherNamesOrShapesThatDoNotFit) {
  for (const auto& [name, shapes] : std::vector<std::pair<const char*, const char*>>{
           {"aten::add", "[[4, 8], [4, 8]]"},
           {"aten::mm", ""},
           {"aten::mm", "[[4, 8]]"},
           {"aten::mm", "[[4, 8], [9, 2]]"},
           {"aten::mm", "[[4, 0], [0, 2]]"},
           {"aten::mm", "nonsense"},
           {"aten::mm", "[[4, x], [8, 2]]"},
           {"aten::linear", "[[8], []]"},
           {"aten::_scaled_dot_product_flash_attention", "[[], [], []]"}}) {
    EXPECT_EQ(operator_cost(name, shapes).flops, 0) << name << " " << shapes;
  }
}

TEST(Flops, ShapesAreReadAsTheyAreRecorded) {
  using Shapes = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(parse_shapes("[[4, 8], [], [2]]"), (Shapes{{4, 8}, {}, {2}}));
  EXPECT_EQ(parse_shapes("[[[1, 2], [3]], [5]]"), (Shapes{{}, {5}}));  // a list of tensors
  EXPECT_EQ(parse_shapes(""), Shapes{});
  EXPECT_EQ(parse_shapes("[]"), Shapes{});
}

}  // namespace
}  // namespace vitrine
