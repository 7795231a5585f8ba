// Orders of a pipeline's work.
#include "schedule/pipeline_order.h"

#include <algorithm>
#include <set>

namespace vitrine {

std::vector<PipelineItem> gpipe_order(PipelineSize size, int) {
  std::vector<PipelineItem> order;
  for (int m = 0; m < size.micros; ++m) order.push_back({PipelineWork::kForward, 0, m});
  for (int m = 0; m < size.micros; ++m) order.push_back({PipelineWork::kBackward, 0, m});
  return order;
}

std::vector<PipelineItem> one_f_one_b_order(PipelineSize size, int stage) {
  std::vector<PipelineItem> order;
  const int warmup = std::min(size.stages - 1 - stage, size.micros);
  int backward = 0;
  for (int m = 0; m < size.micros; ++m) {
    order.push_back({PipelineWork::kForward, 0, m});
    if (m >= warmup) order.push_back({PipelineWork::kBackward, 0, backward++});
  }
  while (backward < size.micros) order.push_back({PipelineWork::kBackward, 0, backward++});
  return order;
}

std::vector<PipelineItem> interleaved_order(PipelineSize size, int stage) {
  // All forwards and all backwards in the order in which any stage takes them.
  std::vector<std::pair<int, int>> forwards, backwards;  // (chunk, micro)
  for (int first = 0; first < size.micros; first += size.stages) {
    const int last = std::min(first + size.stages, size.micros);
    for (int chunk = 0; chunk < size.chunks; ++chunk) {
      for (int m = first; m < last; ++m) {
        forwards.emplace_back(chunk, m);
        backwards.emplace_back(size.chunks - 1 - chunk, m);
      }
    }
  }
  const int total = size.micros * size.chunks;
  int warmup = 2 * (size.stages - stage - 1) + (size.chunks - 1) * size.stages;
  if (size.chunks == 1) warmup = size.stages - stage - 1;
  warmup = std::min(warmup, total);
  std::vector<PipelineItem> order;
  size_t backward = 0;
  const auto push_backward = [&] {
    order.push_back(
        {PipelineWork::kBackward, backwards[backward].first, backwards[backward].second});
    ++backward;
  };
  for (int i = 0; i < total; ++i) {
    const auto [chunk, micro] = forwards[static_cast<size_t>(i)];
    order.push_back({PipelineWork::kForward, chunk, micro});
    if (i >= warmup) push_backward();
  }
  while (backward < backwards.size()) push_backward();
  return order;
}

std::vector<PipelineItem> zero_bubble_order(PipelineSize size, int stage, bool twice_the_memory) {
  std::vector<PipelineItem> order;
  const int behind = size.stages - stage;
  const int warmup = std::min(twice_the_memory ? 2 * behind - 1 : behind, size.micros);
  const int held_back = twice_the_memory ? 2 * stage : stage;
  int forward = 0, weight = 0;
  while (forward < warmup) order.push_back({PipelineWork::kForward, 0, forward++});
  for (int backward = 0; backward < size.micros; ++backward) {
    order.push_back({PipelineWork::kBackward, 0, backward});
    if (backward >= held_back) order.push_back({PipelineWork::kWeight, 0, weight++});
    if (forward < size.micros) order.push_back({PipelineWork::kForward, 0, forward++});
  }
  while (weight < size.micros) order.push_back({PipelineWork::kWeight, 0, weight++});
  return order;
}

int pipeline_position(PipelineSize size, int stage, int chunk, bool v_shaped) {
  if (v_shaped && chunk % 2 == 1) return chunk * size.stages + size.stages - 1 - stage;
  return chunk * size.stages + stage;
}

int most_in_flight(const std::vector<PipelineItem>& order) {
  const bool apart = std::any_of(order.begin(), order.end(), [](const PipelineItem& item) {
    return item.work == PipelineWork::kWeight;
  });
  int alive = 0, most = 0;
  for (const PipelineItem& item : order) {
    if (item.work == PipelineWork::kForward) most = std::max(most, ++alive);
    if (item.work == (apart ? PipelineWork::kWeight : PipelineWork::kBackward)) --alive;
  }
  return most;
}

}  // namespace vitrine
