// Fills batches with windows and takes the last predicted frame.
#include "train/predictor.h"

#include <algorithm>

namespace vitrine {

FramePredictor::FramePredictor(Engine& engine, int64_t window) : engine_(engine), window_(window) {
  const Graph& graph = engine.graph();
  type_ = graph.edges[static_cast<size_t>(graph.edge("batch.frames"))].type;
  clip_frames_ = type_.shape[1];
  batch_ = type_.shape[0];
  frame_ = type_.shape.elements() / (batch_ * clip_frames_);
}

void FramePredictor::predict(const std::vector<const float*>& windows,
                             const std::vector<const int32_t*>& actions,
                             std::vector<std::vector<float>>& next) {
  next.resize(windows.size());
  std::vector<float> frames(static_cast<size_t>(batch_ * clip_frames_ * frame_));
  std::vector<int32_t> action(static_cast<size_t>(batch_ * clip_frames_));
  std::vector<float> predicted;
  for (size_t first = 0; first < windows.size(); first += static_cast<size_t>(batch_)) {
    const size_t rows = std::min(windows.size() - first, static_cast<size_t>(batch_));
    for (size_t r = 0; r < rows; ++r) {
      float* to = frames.data() + static_cast<int64_t>(r) * clip_frames_ * frame_;
      std::copy_n(windows[first + r], window_ * frame_, to);
      std::copy_n(
          actions[first + r], window_, action.data() + static_cast<int64_t>(r) * clip_frames_);
    }
    const BatchViews views = {{"frames", {frames.data(), type_.shape, DType::kF32}},
                              {"actions", {action.data(), {batch_, clip_frames_}, DType::kI32}}};
    const EvalReport report = engine_.evaluate(views);
    const TensorView result = report.results.at("prediction");  // [B, window, H, W, 3]
    predicted.resize(static_cast<size_t>(result.elements()));
    convert(DType::kF32, predicted.data(), result.dtype, result.data, result.elements());
    for (size_t r = 0; r < rows; ++r) {
      const float* from = predicted.data() + (static_cast<int64_t>(r + 1) * window_ - 1) * frame_;
      next[first + r].assign(from, from + frame_);
      for (float& value : next[first + r]) value = std::clamp(value, 0.0f, 1.0f);
    }
  }
}

}  // namespace vitrine
