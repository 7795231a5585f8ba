// Orders of a pipeline's work: which forward, backward and weight gradient each stage runs, one
// after another. The engine runs the first two; the planner prices all.
#pragma once

#include <cstdint>
#include <vector>

namespace vitrine {

enum class PipelineWork : uint8_t {
  kForward,
  kBackward,  // of the whole backward, or of the input's gradient alone where weights come apart
  kWeight,    // gradients of the weights (zero-bubble orders)
};

struct PipelineItem {
  PipelineWork work{};
  int chunk = 0;  // of the stage's model chunks, 0 first in the forward
  int micro = 0;
};

// Stages 0 ... stages - 1, chunks of a stage (virtual stages), micro-batches.
struct PipelineSize {
  int stages = 1, chunks = 1, micros = 1;
};

// GPipe: all forwards, then all backwards, in the order of the forwards (Huang et al. 2019). One
// chunk.
std::vector<PipelineItem> gpipe_order(PipelineSize size, int stage);
// One forward, one backward (PipeDream-Flush, Narayanan et al. 2021): stages - 1 - stage forwards
// of warm-up. One chunk.
std::vector<PipelineItem> one_f_one_b_order(PipelineSize size, int stage);
// Interleaved 1F1B (Narayanan et al. 2021): groups of `stages` micro-batches go through one chunk
// before the next. Micro-batches that do not fill a group are run as a smaller last group.
std::vector<PipelineItem> interleaved_order(PipelineSize size, int stage);
// ZB-H1 and ZB-H2 (Qi et al. 2024, figure 3): weight gradients held back so that every stage keeps
// as many micro-batches alive: `stages`, or 2 stages - 1.
std::vector<PipelineItem> zero_bubble_order(PipelineSize size, int stage, bool twice_the_memory);

// Where chunk `chunk` of `stage` stands in the model: 0 ... stages x chunks - 1. `v_shaped`: the
// second chunk runs back through the stages (ZB-V), so that first and last layer share a stage.
int pipeline_position(PipelineSize size, int stage, int chunk, bool v_shaped);

// Most (chunk, micro-batch) pairs alive at once, from the forward to the end of what still reads
// its activations.
int most_in_flight(const std::vector<PipelineItem>& order);

}  // namespace vitrine
