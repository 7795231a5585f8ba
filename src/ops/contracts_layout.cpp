// Contracts of the operations that move or gather elements: patches, frames, windows, tokens.
#include "core/format.h"
#include "ops/contracts.h"

namespace vitrine::contracts {
namespace {

constexpr char kPatchify[] = "patchify", kUnpatchify[] = "unpatchify",
               kDifference[] = "frame_difference", kSlice[] = "time_slice",
               kShift[] = "shift_window", kPrepend[] = "prepend_token", kTake[] = "take_token",
               kMeanPool[] = "mean_pool", kFlatten[] = "flatten_frames";

void check_rank(const char* op, const char* what, const Shape& shape, int rank) {
  if (shape.rank() != rank)
    fail(op, format("%s has %d dimensions, got %s", what, rank, shape.str().c_str()));
}

void check_one(const char* op, Types in) {
  check_count(op, in, 1, 1);
  check_floating(op, in);
}

// frames[B, T, Y, X, C] -> z[B, T, S, P P C]
OpSignature infer_patchify(const Attrs& attrs, Types in) {
  check_one(kPatchify, in);
  check_rank(kPatchify, "frames [B, T, Y, X, C]", in[0].shape, 5);
  const int64_t patch = whole(kPatchify, attrs, "patch", 1);
  const Shape& f = in[0].shape;
  if (f[2] % patch != 0 || f[3] % patch != 0) {
    fail(kPatchify,
         format("height and width of %s must be multiples of patch (%lld)",
                f.str().c_str(),
                static_cast<long long>(patch)));
  }
  const Shape z{f[0], f[1], (f[2] / patch) * (f[3] / patch), patch * patch * f[4]};
  return {.out = {{z, in[0].dtype}}, .saved = {}};
}

// z[B, T, S, P P C] -> frames[B, T, Y, X, C]
OpSignature infer_unpatchify(const Attrs& attrs, Types in) {
  check_one(kUnpatchify, in);
  check_rank(kUnpatchify, "z [B, T, S, P*P*C]", in[0].shape, 4);
  const int64_t patch = whole(kUnpatchify, attrs, "patch", 1);
  const int64_t height = whole(kUnpatchify, attrs, "height", 1),
                width = whole(kUnpatchify, attrs, "width", 1);
  const Shape& z = in[0].shape;
  if (height % patch != 0 || width % patch != 0 || z[2] != (height / patch) * (width / patch) ||
      z[3] % (patch * patch) != 0) {
    fail(kUnpatchify,
         format("z %s does not hold patches of %lld x %lld of frames %lld x %lld",
                z.str().c_str(),
                static_cast<long long>(patch),
                static_cast<long long>(patch),
                static_cast<long long>(height),
                static_cast<long long>(width)));
  }
  return {.out = {{Shape{z[0], z[1], height, width, z[3] / (patch * patch)}, in[0].dtype}},
          .saved = {}};
}

OpSignature infer_frame_difference(const Attrs&, Types in) {
  check_one(kDifference, in);
  check_rank(kDifference, "z [B, T, S, C]", in[0].shape, 4);
  return {.out = {{in[0].shape.with_last(2 * in[0].shape[3]), in[0].dtype}}, .saved = {}};
}

OpSignature infer_time_slice(const Attrs& attrs, Types in) {
  check_one(kSlice, in);
  check_rank_at_least(kSlice, "x [B, T, ...]", in[0].shape, 2);
  const int64_t begin = whole(kSlice, attrs, "begin", 0), count = whole(kSlice, attrs, "count", 1);
  if (begin + count > in[0].shape[1]) {
    fail(kSlice,
         format("begin %lld + count %lld goes beyond the time of %s",
                static_cast<long long>(begin),
                static_cast<long long>(count),
                in[0].shape.str().c_str()));
  }
  std::vector<int64_t> dims = in[0].shape.dims();
  dims[1] = count;
  return {.out = {{Shape(dims), in[0].dtype}}, .saved = {}};
}

OpSignature infer_shift_window(const Attrs&, Types in) {
  check_count(kShift, in, 2, 2);
  check_floating(kShift, in);
  check_rank_at_least(kShift, "window [B, T, ...]", in[0].shape, 2);
  if (in[0].shape[1] < 1) fail(kShift, "the window " + in[0].shape.str() + " has no frames");
  check_shape(kShift, "next", in[1].shape, in[0].shape);
  return {.out = {{in[0].shape, in[0].dtype}}, .saved = {}};
}

OpSignature infer_prepend_token(const Attrs&, Types in) {
  check_count(kPrepend, in, 2, 2);
  check_floating(kPrepend, in);
  check_rank(kPrepend, "x [B, S, D]", in[0].shape, 3);
  const Shape& x = in[0].shape;
  check_shape(kPrepend, "token", in[1].shape, Shape{x[2]});
  return {.out = {{Shape{x[0], x[1] + 1, x[2]}, in[0].dtype}}, .saved = {}};
}

OpSignature infer_take_token(const Attrs& attrs, Types in) {
  check_one(kTake, in);
  check_rank(kTake, "x [B, S, D]", in[0].shape, 3);
  const int64_t index = whole(kTake, attrs, "index", 0);
  if (index >= in[0].shape[1]) {
    fail(kTake,
         format("index %lld is not a token of %s",
                static_cast<long long>(index),
                in[0].shape.str().c_str()));
  }
  return {.out = {{Shape{in[0].shape[0], in[0].shape[2]}, in[0].dtype}}, .saved = {}};
}

OpSignature infer_mean_pool(const Attrs&, Types in) {
  check_one(kMeanPool, in);
  check_rank(kMeanPool, "x [B, S, D]", in[0].shape, 3);
  if (in[0].shape[1] < 1) fail(kMeanPool, "there are no tokens to average in " + in[0].shape.str());
  return {.out = {{Shape{in[0].shape[0], in[0].shape[2]}, in[0].dtype}}, .saved = {}};
}

OpSignature infer_flatten_frames(const Attrs&, Types in) {
  check_one(kFlatten, in);
  check_rank(kFlatten, "x [B, T, S, D]", in[0].shape, 4);
  const Shape& x = in[0].shape;
  return {.out = {{Shape{x[0] * x[1], x[2], x[3]}, in[0].dtype}}, .saved = {}};
}

// Only what is copied is read, so a forward moves its output twice.
template <OpSignature (*Infer)(const Attrs&, Types)>
Cost copy_cost(const Attrs& attrs, Types in) {
  return {0, 2 * sum_bytes(Infer(attrs, in).out), false};
}

template <OpSignature (*Infer)(const Attrs&, Types), int ForwardFlops>
Cost arithmetic_cost(const Attrs& attrs, Types in) {
  return {ForwardFlops * element_count(in[0]), forward_bytes(Infer(attrs, in), in), false};
}

// Output gradients read, input gradients written (zeros included).
template <OpSignature (*Infer)(const Attrs&, Types), int Flops>
Cost gradient_cost(const Attrs& attrs, Types in) {
  return {Flops * element_count(in[0]), sum_bytes(Infer(attrs, in).out) + sum_bytes(in), false};
}

}  // namespace

std::vector<OpDef> layout_ops() {
  return {
      {kPatchify,
       1,
       1,
       1,
       0,
       0,
       infer_patchify,
       copy_cost<infer_patchify>,
       gradient_cost<infer_patchify, 0>},
      {kUnpatchify,
       1,
       1,
       1,
       0,
       0,
       infer_unpatchify,
       copy_cost<infer_unpatchify>,
       gradient_cost<infer_unpatchify, 0>},
      {kDifference,
       1,
       1,
       1,
       0,
       0,
       infer_frame_difference,
       arithmetic_cost<infer_frame_difference, 1>,
       gradient_cost<infer_frame_difference, 2>},
      {kSlice,
       1,
       1,
       1,
       0,
       0,
       infer_time_slice,
       copy_cost<infer_time_slice>,
       gradient_cost<infer_time_slice, 0>},
      {kShift,
       2,
       2,
       0b11,
       0,
       0,
       infer_shift_window,
       copy_cost<infer_shift_window>,
       gradient_cost<infer_shift_window, 0>},
      {kPrepend,
       2,
       2,
       0b11,
       0,
       0,
       infer_prepend_token,
       copy_cost<infer_prepend_token>,
       gradient_cost<infer_prepend_token, 0>},
      {kTake,
       1,
       1,
       1,
       0,
       0,
       infer_take_token,
       copy_cost<infer_take_token>,
       gradient_cost<infer_take_token, 0>},
      {kMeanPool,
       1,
       1,
       1,
       0,
       0,
       infer_mean_pool,
       arithmetic_cost<infer_mean_pool, 1>,
       gradient_cost<infer_mean_pool, 1>},
      {kFlatten,
       1,
       1,
       1,
       0,
       0,
       infer_flatten_frames,
       copy_cost<infer_flatten_frames>,
       gradient_cost<infer_flatten_frames, 0>},
  };
}

}  // namespace vitrine::contracts
