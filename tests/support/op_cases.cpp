// The table of operation cases.
#include "support/op_cases.h"

namespace vitrine::test {

std::string OpCase::label() const {
  std::string text = op;
  for (const Shape& shape : shapes) text += " " + shape.str();
  for (const auto& [name, value] : attrs.values())
    text += " " + name + "=" + std::to_string(value).substr(0, 7);
  return text;
}

bool OpCase::is_ids(size_t input) const {
  return (op == "embedding" && input == 0) || (op == "linear_cross_entropy" && input == 2);
}

std::vector<TensorType> OpCase::types(DType dtype) const {
  std::vector<TensorType> all;
  for (size_t i = 0; i < shapes.size(); ++i)
    all.push_back({shapes[i], is_ids(i) ? DType::kI32 : dtype});
  return all;
}

namespace {

Attrs attention(int heads, int kv_heads, int head_dim, int axis, int causal, int block = 1) {
  return {{"heads", heads},
          {"kv_heads", kv_heads},
          {"head_dim", head_dim},
          {"axis", axis},
          {"causal", causal},
          {"causal_block", block}};
}

Attrs rotary(int heads, int head_dim, double base, int axis) {
  return {{"heads", heads}, {"head_dim", head_dim}, {"base", base}, {"axis", axis}};
}

Attrs qk_norm(int heads, int kv_heads, int head_dim) {
  return {{"heads", heads}, {"kv_heads", kv_heads}, {"head_dim", head_dim}, {"eps", 1e-6}};
}

Attrs qk_norm_turned(int heads, int kv_heads, int head_dim, double base, int axis) {
  Attrs attrs = qk_norm(heads, kv_heads, head_dim);
  attrs.set("base", base);
  attrs.set("axis", axis);
  return attrs;
}

const Attrs kEps{{"eps", 1e-5}};

// Norms and activations over rows of one width.
void add_row_cases(std::vector<OpCase>& cases, const Shape& x) {
  const Shape weight{x[-1]};
  cases.push_back({"rms_norm", kEps, {x, weight}});
  cases.push_back({"add_rms_norm", kEps, {x, x, weight}});
  cases.push_back({"layer_norm", kEps, {x, weight, weight}});
  cases.push_back({"add_layer_norm", kEps, {x, x, weight, weight}});
  cases.push_back({"swiglu", {}, {x.with_last(2 * x[-1])}});
  for (int form = 0; form < 3; ++form) {
    cases.push_back({"gelu", {{"form", static_cast<double>(form)}}, {x}});
  }
  cases.push_back({"mse", {}, {x, x}});
  cases.push_back({"l1", {}, {x, x}});
  cases.push_back({"add", {}, {x, x}});
  cases.push_back({"scale", {{"factor", -0.37}}, {x}});
  cases.push_back({"gated_sigmoid", {}, {x, weight, weight}});
}

// Everything that has a batch B, time T, tokens S and channels C.
void add_video_cases(std::vector<OpCase>& cases, int64_t b, int64_t t, int64_t s, int64_t c) {
  const Shape z{b, t, s, c};
  cases.push_back({"frame_difference", {}, {z}});
  cases.push_back({"time_slice", {{"begin", 1}, {"count", static_cast<double>(t - 1)}}, {z}});
  cases.push_back({"time_slice", {{"begin", 0}, {"count", 1}}, {Shape{b, t, c}}});
  cases.push_back({"shift_window", {}, {z, z}});
  cases.push_back({"prepend_token", {}, {Shape{b, s, c}, Shape{c}}});
  cases.push_back({"take_token", {{"index", 0}}, {Shape{b, s, c}}});
  cases.push_back({"take_token", {{"index", static_cast<double>(s - 1)}}, {Shape{b, s, c}}});
  cases.push_back({"mean_pool", {}, {Shape{b, s, c}}});
  cases.push_back({"flatten_frames", {}, {z}});
  cases.push_back({"patchify", {{"patch", 2}}, {Shape{b, t, 4, 6, c}}});
  cases.push_back(
      {"unpatchify", {{"patch", 2}, {"height", 4}, {"width", 6}}, {Shape{b, t, 6, 4 * c}}});
  cases.push_back({"add_broadcast", {{"dims", 0b1100}}, {z, Shape{s, c}}});
  cases.push_back({"add_broadcast", {{"dims", 0b1010}}, {z, Shape{t, c}}});
  cases.push_back({"add_broadcast", {{"dims", 0b1011}}, {z, Shape{b, t, c}}});
  cases.push_back({"add_broadcast", {{"dims", 0b0101}}, {z, Shape{b, s}}});
  cases.push_back({"add_broadcast", {{"dims", 0b1111}}, {z, z}});
}

}  // namespace

std::vector<OpCase> small_op_cases() {
  std::vector<OpCase> cases = {
      {"linear", {}, {{3, 5}, {4, 5}}},
      {"linear", {}, {{2, 3, 4}, {7, 4}, {7}}},
      {"linear", {}, {{1, 1}, {1, 1}, {1}}},
      {"linear", {{"fp8", 1}}, {{2, 8, 16}, {32, 16}, {32}}},
      {"linear", {{"fp8", 3}}, {{2, 8, 16}, {32, 16}, {32}}},
      {"attention", attention(2, 2, 3, 1, 1), {{2, 5, 18}}},
      {"attention", attention(2, 1, 4, 0, 0), {{4, 3, 16}}},
      {"attention", attention(4, 2, 2, 1, 1, 2), {{2, 5, 2, 16}}},
      {"attention", attention(1, 1, 4, -2, 0), {{1, 12}}},
      {"rotary", rotary(2, 4, 100, 1), {{2, 3, 10}}},
      {"rotary", rotary(1, 6, 10000, 0), {{3, 2, 6}}},
      {"qk_norm", qk_norm(2, 1, 4), {{3, 16}, {4}, {4}}},
      {"qk_norm", qk_norm_turned(2, 1, 4, 100, 1), {{2, 3, 2, 16}, {4}, {4}}},
      {"qk_norm", qk_norm_turned(1, 1, 6, 1e4, 0), {{5, 18}, {6}, {6}}},
      {"embedding", {}, {{2, 4}, {5, 3}}, 5},
      {"linear_cross_entropy", {{"chunk_rows", 0}}, {{5, 4}, {7, 4}, {5}}, 7, true},
      {"linear_cross_entropy", {{"chunk_rows", 2}}, {{5, 4}, {7, 4}, {5}}, 7, true},
      {"linear_cross_entropy", {{"chunk_rows", 8}}, {{2, 3, 4}, {3, 4}, {2, 3}}, 3},
      {"linear_cross_entropy",
       {{"chunk_rows", 2}, {"gradient_in_forward", 1}},
       {{5, 4}, {7, 4}, {5}},
       7,
       true,
       1e-6,
       2},
  };
  add_row_cases(cases, Shape{1, 1, 5});
  add_row_cases(cases, Shape{3, 8});
  const size_t before = cases.size();
  add_row_cases(cases, Shape{4, 1});
  for (size_t i = before; i < cases.size(); ++i) cases[i].floor = 1;
  add_video_cases(cases, 2, 3, 2, 3);
  add_video_cases(cases, 1, 2, 1, 1);
  return cases;
}

std::vector<OpCase> large_op_cases() {
  std::vector<OpCase> cases = {
      {"linear", {}, {{300, 70}, {130, 70}, {130}}},
      {"linear", {}, {{2, 128, 64}, {192, 64}}},
      {"linear", {}, {{1, 33}, {17, 33}, {17}}},
      {"linear", {}, {{513, 1}, {3, 1}, {3}}},
      {"linear", {{"fp8", 1}}, {{2, 144, 208}, {272, 208}, {272}}},
      {"linear", {{"fp8", 1}}, {{256, 1024}, {512, 1024}}},
      {"linear", {{"fp8", 2}}, {{2, 144, 208}, {272, 208}, {272}}},
      {"linear", {{"fp8", 3}}, {{256, 1024}, {512, 1024}}},
      {"swiglu", {{"fp8", 1}}, {{5, 160}}},
      {"linear", {{"fp8", 1}}, {{33, 32}, {16, 32}, {16}}},
      {"attention", attention(4, 4, 64, 1, 1), {{2, 200, 768}}},
      {"attention", attention(4, 2, 32, 1, 1), {{1, 129, 256}}},
      {"attention", attention(2, 2, 32, 2, 0), {{2, 3, 37, 192}}},
      {"attention", attention(2, 2, 32, 1, 1), {{2, 8, 37, 192}}},
      {"attention", attention(2, 2, 64, 2, 0), {{2, 3, 64, 384}}},
      {"attention", attention(3, 3, 64, 1, 1), {{2, 16, 5, 576}}},
      {"attention", attention(2, 2, 64, 1, 1, 4), {{3, 23, 384}}},
      {"attention", attention(4, 2, 64, 1, 1), {{2, 21, 3, 512}}},
      {"attention", attention(3, 1, 20, 1, 0), {{3, 5, 7, 100}}},
      {"attention", attention(2, 2, 16, 1, 1, 9), {{2, 75, 96}}},
      {"attention", attention(2, 1, 24, 1, 0), {{2, 17, 96}}},
      {"attention", attention(1, 1, 33, 0, 1), {{70, 2, 99}}},
      {"rotary", rotary(6, 32, 10000, 1), {{3, 50, 256}}},
      {"rotary", rotary(2, 10, 500, 1), {{3, 7, 5, 33}}},
      {"qk_norm", qk_norm(4, 2, 32), {{3, 50, 256}, {32}, {32}}},
      {"qk_norm", qk_norm(2, 2, 20), {{70, 120}, {20}, {20}}},
      {"qk_norm", qk_norm_turned(4, 2, 32, 1e4, 1), {{3, 50, 256}, {32}, {32}}},
      {"qk_norm", qk_norm_turned(3, 1, 64, 1e4, 1), {{2, 9, 7, 320}, {64}, {64}}},
      {"qk_norm", qk_norm_turned(2, 2, 20, 500, 0), {{70, 120}, {20}, {20}}},
      {"embedding", {}, {{5, 70}, {50, 96}}, 50},
      {"embedding", {}, {{300}, {1000, 17}}, 1000},
      {"linear_cross_entropy", {{"chunk_rows", 0}}, {{200, 64}, {500, 64}, {200}}, 500, true},
      {"linear_cross_entropy", {{"chunk_rows", 64}}, {{200, 64}, {500, 64}, {200}}, 500, true},
      {"linear_cross_entropy", {{"chunk_rows", 0}}, {{3, 33}, {1001, 33}, {3}}, 1001},
      {"linear_cross_entropy",
       {{"chunk_rows", 64}, {"gradient_in_forward", 1}},
       {{200, 64}, {504, 64}, {200}},
       504,
       true,
       1e-6,
       2},
      {"linear_cross_entropy",
       {{"chunk_rows", 0}, {"gradient_in_forward", 1}},
       {{5, 16}, {45000, 16}, {5}},
       45000,
       false,
       1e-6,
       2},
      {"linear_cross_entropy",
       {{"chunk_rows", 2}, {"gradient_in_forward", 1}},
       {{3, 33}, {1001, 33}, {3}},
       1001,
       false,
       1e-6,
       2},
  };
  add_row_cases(cases, Shape{3, 67, 256});
  add_row_cases(cases, Shape{500, 33});
  add_row_cases(cases, Shape{1, 1000});
  add_video_cases(cases, 3, 5, 12, 17);
  add_video_cases(cases, 4, 4, 36, 48);
  return cases;
}

}  // namespace vitrine::test
