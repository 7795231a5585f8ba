// The grid. Between its points the planner interpolates (plan/measured_costs.h), so neighbours are
// a factor of four apart at most where models are common.
#include "calibrate/op_grid.h"

namespace vitrine {
namespace {

struct Matrix {
  int64_t rows, width;
};

// A row of a batch has 64 places, so that operations that look at the dimensions before the last
// find some.
Shape batch_of(Matrix m) { return {m.rows / 64, 64, m.width}; }

void add_products(std::vector<OpCase>& cases, const std::vector<Matrix>& sizes, bool quick) {
  for (const Matrix m : sizes) {
    const int64_t d = m.width;
    cases.push_back({"linear", {}, {batch_of(m), {d, d}}});
    cases.push_back({"linear", {}, {batch_of(m), {3 * d, d}}});
    if (quick || m.rows * d * d > int64_t{1} << 30) continue;
    cases.push_back({"linear", {}, {batch_of({m.rows, 3 * d}), {d, 3 * d}}});
    cases.push_back({"linear", {}, {batch_of(m), {6 * d, d}}});
  }
  for (const Matrix m : {Matrix{512, 64}, {2048, 64}}) {  // narrow ends: patches, pictures, actions
    cases.push_back({"linear", {}, {batch_of(m), {48, 64}}});
    cases.push_back({"linear", {}, {batch_of({m.rows, 48}), {64, 48}, {64}}});
  }
  for (const Matrix m : {Matrix{512, 64}, {512, 256}, {2048, 256}}) {
    for (const int64_t vocabulary : {512, 8192}) {
      if (quick && vocabulary == 512) continue;
      const Shape ids{m.rows / 64, 64};
      for (const int chunk : {0, 512}) {
        if (chunk > 0 && m.rows == 512) continue;
        cases.push_back({"linear_cross_entropy",
                         {{"chunk_rows", chunk}},
                         {batch_of(m), {vocabulary, m.width}, ids},
                         2,
                         vocabulary});
      }
      cases.push_back({"embedding", {}, {ids, {vocabulary, m.width}}, 0, vocabulary});
    }
  }
}

Attrs attention(int64_t heads, int64_t head_dim, int axis, int causal) {
  return {{"heads", static_cast<double>(heads)},
          {"kv_heads", static_cast<double>(heads)},
          {"head_dim", static_cast<double>(head_dim)},
          {"axis", axis},
          {"causal", causal}};
}

void add_attention(std::vector<OpCase>& cases, bool quick) {
  struct Size {
    int64_t batch, length, heads, head_dim;
  };
  for (const Size s : {Size{8, 64, 4, 32}, {8, 128, 4, 64}, {8, 256, 4, 64}, {2, 512, 4, 64}}) {
    const int64_t packed = 3 * s.heads * s.head_dim;
    cases.push_back(
        {"attention", attention(s.heads, s.head_dim, 1, 1), {{s.batch, s.length, packed}}});
    cases.push_back(
        {"attention", attention(s.heads, s.head_dim, 1, 0), {{s.batch, s.length, packed}}});
    if (quick) break;
  }
  // Of videos: over the patches of a frame, and over the frames at a patch.
  struct Video {
    int64_t batch, frames, patches, heads, head_dim;
  };
  for (const Video v : {Video{8, 4, 36, 2, 32}, {8, 8, 64, 3, 32}, {2, 16, 64, 10, 64}}) {
    const Shape shape{v.batch, v.frames, v.patches, 3 * v.heads * v.head_dim};
    cases.push_back({"attention", attention(v.heads, v.head_dim, 2, 0), {shape}});
    cases.push_back({"attention", attention(v.heads, v.head_dim, 1, 1), {shape}});
    if (quick) break;
  }
}

void add_rows(std::vector<OpCase>& cases, const std::vector<Matrix>& sizes) {
  const Attrs eps{{"eps", 1e-5}};
  for (const Matrix m : sizes) {
    const Shape x = batch_of(m), w{m.width};
    const int64_t heads = m.width / 32;
    const Shape packed = batch_of({m.rows, 3 * m.width});
    cases.push_back({"rms_norm", eps, {x, w}});
    cases.push_back({"add_rms_norm", eps, {x, x, w}});
    cases.push_back({"layer_norm", eps, {x, w, w}});
    cases.push_back({"add_layer_norm", eps, {x, x, w, w}});
    cases.push_back({"swiglu", {}, {batch_of({m.rows, 5 * m.width})}});
    cases.push_back({"gelu", {{"form", 1}}, {batch_of({m.rows, 4 * m.width})}});
    cases.push_back({"add", {}, {x, x}});
    cases.push_back({"add_broadcast", {{"dims", 0b110}}, {x, {64, m.width}}});
    cases.push_back({"scale", {{"factor", 0.5}}, {x}});
    cases.push_back({"rotary",
                     {{"heads", static_cast<double>(2 * heads)},
                      {"head_dim", 32},
                      {"base", 10000},
                      {"axis", 1}},
                     {packed}});
    cases.push_back({"qk_norm",
                     {{"heads", static_cast<double>(heads)},
                      {"kv_heads", static_cast<double>(heads)},
                      {"head_dim", 32},
                      {"eps", 1e-6}},
                     {packed, {32}, {32}}});
  }
}

void add_pictures(std::vector<OpCase>& cases, bool quick) {
  struct Video {
    int64_t batch, frames, side, width;
  };
  for (const Video v : {Video{8, 4, 24, 64}, {8, 8, 32, 96}}) {
    const int64_t patches = v.side / 4 * (v.side / 4);
    const Shape z{v.batch, v.frames, patches, 48}, hidden{v.batch, v.frames, patches, v.width};
    const Shape picture{v.batch * v.frames, patches, v.width};
    const auto side = static_cast<double>(v.side);
    cases.push_back({"patchify", {{"patch", 4}}, {{v.batch, v.frames, v.side, v.side, 3}}});
    cases.push_back({"unpatchify", {{"patch", 4}, {"height", side}, {"width", side}}, {z}});
    cases.push_back({"frame_difference", {}, {z}});
    cases.push_back({"gated_sigmoid", {}, {z, {48}, {48}}});
    cases.push_back({"mse", {}, {z, z}});
    cases.push_back({"l1", {}, {z, z}});
    cases.push_back(
        {"time_slice", {{"begin", 0}, {"count", static_cast<double>(v.frames - 1)}}, {hidden}});
    cases.push_back({"shift_window", {}, {z, z}});
    cases.push_back({"add_broadcast", {{"dims", 0b1100}}, {hidden, {patches, v.width}}});
    cases.push_back({"flatten_frames", {}, {hidden}});
    cases.push_back({"prepend_token", {}, {picture, {v.width}}});
    cases.push_back({"take_token", {{"index", 0}}, {picture}});
    cases.push_back({"mean_pool", {}, {picture}});
    if (quick) break;
  }
}

}  // namespace

std::vector<OpCase> calibration_cases(bool quick) {
  const std::vector<Matrix> sizes = quick
                                        ? std::vector<Matrix>{{1024, 64}, {1024, 256}, {1024, 512}}
                                        : std::vector<Matrix>{{256, 64},
                                                              {1024, 64},
                                                              {4096, 64},
                                                              {256, 256},
                                                              {1024, 256},
                                                              {2048, 256},
                                                              {512, 1024}};
  std::vector<OpCase> cases;
  add_products(cases, sizes, quick);
  add_attention(cases, quick);
  add_rows(cases, sizes);
  add_pictures(cases, quick);
  return cases;
}

}  // namespace vitrine
