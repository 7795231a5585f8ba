// Reference rows of the operations that move or gather elements.
#include "ops/cpu/reference/values.h"

namespace vitrine::reference {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

// Calls body(place in frames, place in z) for each element of frames[B, T, Y, X, C] and z[B, T, S,
// P P C].
template <typename Body>
void for_each_patch_element(const Shape& frames, int64_t patch, const Body& body) {
  const int64_t height = frames[2], width = frames[3], channels = frames[4];
  int64_t place = 0;
  for (int64_t frame = 0; frame < frames[0] * frames[1]; ++frame) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t s = (y / patch) * (width / patch) + x / patch;
        const int64_t inside = (y % patch * patch + x % patch) * channels;
        const int64_t tokens = (height / patch) * (width / patch);
        const int64_t z = (frame * tokens + s) * patch * patch * channels + inside;
        for (int64_t c = 0; c < channels; ++c) body(at(place++), at(z + c));
      }
    }
  }
}

Values to_patches(const Values& frames, const Shape& shape, int64_t patch) {
  Values z(frames.size());
  for_each_patch_element(
      shape, patch, [&](size_t frame_at, size_t z_at) { z[z_at] = frames[frame_at]; });
  return z;
}

Values to_frames(const Values& z, const Shape& shape, int64_t patch) {
  Values frames(z.size());
  for_each_patch_element(
      shape, patch, [&](size_t frame_at, size_t z_at) { frames[frame_at] = z[z_at]; });
  return frames;
}

void patchify_forward(const OpCall& call) {
  store(call.out[0], to_patches(load(call.in[0]), call.in[0].shape, call.attrs->integer("patch")));
}

void patchify_backward(const OpCall& call, Views dout, Gradients din) {
  store_gradient(din[0], to_frames(load(dout[0]), din[0].view.shape, call.attrs->integer("patch")));
}

void unpatchify_forward(const OpCall& call) {
  store(call.out[0], to_frames(load(call.in[0]), call.out[0].shape, call.attrs->integer("patch")));
}

void unpatchify_backward(const OpCall& call, Views dout, Gradients din) {
  store_gradient(din[0], to_patches(load(dout[0]), dout[0].shape, call.attrs->integer("patch")));
}

// z[B, T, S, C] -> [B, T, S, 2 C]; rows of one frame are S, so the frame before is S rows back.
void frame_difference_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t frame = shape[2] * shape[3], channels = shape[3];
  const Values z = load(call.in[0]);
  Values y(z.size() * 2);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const bool first = i / frame % shape[1] == 0;
    const int64_t place = i / channels * 2 * channels + i % channels;
    y[at(place)] = z[at(i)];
    y[at(place + channels)] = first ? 0 : z[at(i)] - z[at(i - frame)];
  }
  store(call.out[0], y);
}

void frame_difference_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = dout[0].shape;
  const int64_t channels = shape[3] / 2, frame = shape[2] * channels;
  const Values dy = load(dout[0]);
  Values dz(dy.size() / 2);
  for (int64_t i = 0; i < static_cast<int64_t>(dz.size()); ++i) {
    const int64_t place = i / channels * 2 * channels + i % channels;
    dz[at(i)] += dy[at(place)];
    if (i / frame % shape[1] == 0) continue;
    dz[at(i)] += dy[at(place + channels)];
    dz[at(i - frame)] -= dy[at(place + channels)];
  }
  store_gradient(din[0], dz);
}

// Elements of one time step of x[B, T, ...].
int64_t step_of(const Shape& shape) { return shape.elements() / (shape[0] * shape[1]); }

void time_slice_forward(const OpCall& call) {
  const Shape &from = call.in[0].shape, &to = call.out[0].shape;
  const Values x = load(call.in[0]);
  Values y = zeros(to.elements());
  const int64_t span = to[1] * (to.elements() ? step_of(to) : 0);
  const int64_t begin = call.attrs->integer("begin") * (span / to[1]);
  for (int64_t i = 0; i < to.elements(); ++i) {
    y[at(i)] = x[at(i / span * (span / to[1] * from[1]) + begin + i % span)];
  }
  store(call.out[0], y);
}

void time_slice_backward(const OpCall& call, Views dout, Gradients din) {
  const Shape &from = dout[0].shape, &to = din[0].view.shape;
  const Values dy = load(dout[0]);
  Values dx = zeros(to.elements());
  const int64_t span = from[1] * (from.elements() ? step_of(from) : 0);
  const int64_t begin = call.attrs->integer("begin") * (span / from[1]);
  for (int64_t i = 0; i < from.elements(); ++i) {
    dx[at(i / span * (span / from[1] * to[1]) + begin + i % span)] = dy[at(i)];
  }
  store_gradient(din[0], dx);
}

// window[:, 1:] followed by next[:, T-1].
void shift_window_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const Values window = load(call.in[0]), next = load(call.in[1]);
  Values y = next;
  const int64_t step = y.empty() ? 1 : step_of(shape);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    if (i / step % shape[1] != shape[1] - 1) y[at(i)] = window[at(i + step)];
  }
  store(call.out[0], y);
}

void shift_window_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = dout[0].shape;
  const Values dy = load(dout[0]);
  Values dwindow = zeros(shape.elements()), dnext = zeros(shape.elements());
  const int64_t step = dy.empty() ? 1 : step_of(shape);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const bool last = i / step % shape[1] == shape[1] - 1;
    (last ? dnext[at(i)] : dwindow[at(i + step)]) = dy[at(i)];
  }
  store_gradient(operand(din, 0), dwindow);
  store_gradient(operand(din, 1), dnext);
}

void prepend_token_forward(const OpCall& call) {
  const Shape& shape = call.out[0].shape;
  const Values x = load(call.in[0]), token = load(call.in[1]);
  Values y = zeros(shape.elements());
  const int64_t row = shape[1] * shape[2];
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const int64_t b = i / row, inside = i % row;
    y[at(i)] = inside < shape[2] ? token[at(inside)] : x[at(i - (b + 1) * shape[2])];
  }
  store(call.out[0], y);
}

void prepend_token_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = dout[0].shape;
  const Values dy = load(dout[0]);
  const int64_t row = shape[1] * shape[2];
  Values dx = zeros(shape[0] * (shape[1] - 1) * shape[2]), dtoken = zeros(shape[2]);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const int64_t b = i / row, inside = i % row;
    if (inside < shape[2]) {
      dtoken[at(inside)] += dy[at(i)];
    } else {
      dx[at(i - (b + 1) * shape[2])] = dy[at(i)];
    }
  }
  store_gradient(operand(din, 0), dx);
  store_gradient(operand(din, 1), dtoken);
}

void take_token_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t index = call.attrs->integer("index");
  const Values x = load(call.in[0]);
  Values y = zeros(shape[0] * shape[2]);
  for (int64_t i = 0; i < call.out[0].elements(); ++i) {
    y[at(i)] = x[at((i / shape[2] * shape[1] + index) * shape[2] + i % shape[2])];
  }
  store(call.out[0], y);
}

void take_token_backward(const OpCall& call, Views dout, Gradients din) {
  const Shape& shape = din[0].view.shape;
  const int64_t index = call.attrs->integer("index");
  const Values dy = load(dout[0]);
  Values dx = zeros(shape.elements());
  for (int64_t i = 0; i < dout[0].elements(); ++i) {
    dx[at((i / shape[2] * shape[1] + index) * shape[2] + i % shape[2])] = dy[at(i)];
  }
  store_gradient(din[0], dx);
}

void mean_pool_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const Values x = load(call.in[0]);
  Values y = zeros(shape[0] * shape[2]);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    y[at(i / (shape[1] * shape[2]) * shape[2] + i % shape[2])] +=
        x[at(i)] / static_cast<double>(shape[1]);
  }
  store(call.out[0], y);
}

void mean_pool_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = din[0].view.shape;
  const Values dy = load(dout[0]);
  Values dx = zeros(shape.elements());
  for (int64_t i = 0; i < shape.elements(); ++i) {
    dx[at(i)] =
        dy[at(i / (shape[1] * shape[2]) * shape[2] + i % shape[2])] / static_cast<double>(shape[1]);
  }
  store_gradient(din[0], dx);
}

void flatten_frames_forward(const OpCall& call) { store(call.out[0], load(call.in[0])); }

void flatten_frames_backward(const OpCall&, Views dout, Gradients din) {
  store_gradient(din[0], load(dout[0]));
}

}  // namespace

void add_layout(Backend& backend) {
  backend.add("patchify", {patchify_forward, guarded<patchify_backward>});
  backend.add("unpatchify", {unpatchify_forward, guarded<unpatchify_backward>});
  backend.add("frame_difference", {frame_difference_forward, guarded<frame_difference_backward>});
  backend.add("time_slice", {time_slice_forward, guarded<time_slice_backward>});
  backend.add("shift_window", {shift_window_forward, guarded<shift_window_backward>});
  backend.add("prepend_token", {prepend_token_forward, guarded<prepend_token_backward>});
  backend.add("take_token", {take_token_forward, guarded<take_token_backward>});
  backend.add("mean_pool", {mean_pool_forward, guarded<mean_pool_backward>});
  backend.add("flatten_frames", {flatten_frames_forward, guarded<flatten_frames_backward>});
}

}  // namespace vitrine::reference
