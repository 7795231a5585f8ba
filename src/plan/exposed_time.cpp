// A pipeline's time, and what of the communication beside it is not hidden.
#include "plan/exposed_time.h"

#include <algorithm>

namespace vitrine {
namespace {

// Micro-batches beyond which a pipeline's steady state is continued in a straight line.
constexpr int kSteadyRounds = 6;
// Stages x micro-batches up to which a searched order is made whole.
constexpr int64_t kSearchedItems = 1'000'000;

double real(int64_t value) { return static_cast<double>(value); }

}  // namespace

Makespan run_pipeline(const ClusterStrategy& s, PipelineTimes times, int64_t micros) {
  const int p = times.size.stages;
  const int64_t round = p, most = std::max<int64_t>(64, kSteadyRounds * round);
  const auto simulate = [&](int64_t m) {
    times.size.micros = static_cast<int>(m);
    return simulate_pipeline(times, pipeline_orders(s, times));
  };
  Makespan made;
  // A searched order has no steady state that its length does not change.
  const bool searched = s.pipeline == PipelineKind::kZb1p || s.pipeline == PipelineKind::kZb2p;
  if (micros <= most + round || (searched && p > 1 && micros * p <= kSearchedItems)) {
    made.result = simulate(micros);
    made.total_ns = made.result.makespan_ns;
    made.end_ns = made.result.end_ns;
    return made;
  }
  // The same remainder of whole rounds, so that the last round looks the same.
  const int64_t less = most / round * round + micros % round;
  const PipelineResult before = simulate(less - round);
  made.result = simulate(less);
  const double rounds = real(micros - less) / real(round);
  made.total_ns = made.result.makespan_ns + rounds * (made.result.makespan_ns - before.makespan_ns);
  made.end_ns = made.result.end_ns;
  for (size_t i = 0; i < made.end_ns.size(); ++i) {
    made.end_ns[i] += rounds * (made.result.end_ns[i] - before.end_ns[i]);
    made.result.busy_ns[i] += rounds * (made.result.busy_ns[i] - before.busy_ns[i]);
  }
  made.result.makespan_ns = made.total_ns;
  return made;
}

SharedPass shared_pass(const std::vector<BlockPiece>& blocks,
                       bool first_chunk,
                       const ClusterStrategy& s,
                       int64_t micros) {
  SharedPass pass;
  const size_t n = blocks.size();
  for (size_t i = 0; i < n; ++i) {
    const BlockPiece& b = blocks[i];
    pass.slow_forward += b.slow;
    pass.slow_backward += b.slow_back;
    if (!s.overlap_gather) {
      pass.forward += b.gather;
    } else if (i + 1 < n) {
      pass.forward += std::max(0.0, blocks[i + 1].gather - b.forward - b.slow);
    }
    // Backward: the last block is still gathered from its forward.
    const double before = i > 0 && s.overlap_gather ? blocks[i - 1].gather : 0;
    const double after = i + 1 < n && s.overlap_reduce ? blocks[i + 1].reduce : 0;
    const double beside = std::max(0.0, before + after - b.backward - b.weight - b.slow_back);
    const double share = before + after > 0 ? before / (before + after) : 0;
    pass.gather += beside * share;
    pass.reduce += beside * (1 - share);
    if (!s.overlap_gather && i + 1 < n) pass.gather += b.gather;
    if (!s.overlap_reduce) pass.reduce += b.reduce;
  }
  pass.backward = pass.gather + pass.reduce;
  if (n > 0 && s.overlap_gather && first_chunk) pass.forward += blocks[0].gather;
  pass.gather += pass.forward;
  if (n > 0 && s.overlap_reduce && first_chunk) {
    // Behind the last backward of the step alone.
    const double last = blocks[0].reduce / real(micros);
    pass.backward += last;
    pass.reduce += last;
  }
  return pass;
}

double exposed_after(const StagePieces& stage, double reduce, const PipelineResult& run, int at) {
  const size_t chunks = stage.chunks.size(), first = static_cast<size_t>(at) * chunks;
  size_t blocks = 0;
  bool apart = false;
  std::vector<size_t> order(chunks);
  for (size_t c = 0; c < chunks; ++c) {
    order[c] = c;
    blocks += stage.chunks[c].size();
    for (const BlockPiece& piece : stage.chunks[c]) apart = apart || piece.weight > 0;
  }
  if (blocks == 0) return reduce;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return run.chunk_end_ns[first + a] < run.chunk_end_ns[first + b];
  });
  const auto length = [&](const BlockPiece& p) { return apart ? p.weight : p.backward; };
  double lane = 0;
  for (const size_t c : order) {
    double done = run.chunk_end_ns[first + c];
    for (const BlockPiece& piece : stage.chunks[c]) done -= length(piece);
    for (size_t i = stage.chunks[c].size(); i-- > 0;) {
      done += length(stage.chunks[c][i]);
      lane = std::max(lane, done) + reduce / real(static_cast<int64_t>(blocks));
    }
  }
  return std::max(0.0, lane - run.end_ns[static_cast<size_t>(at)]);
}

double exposed_before(const StagePieces& stage, double publish, const PipelineResult& run, int at) {
  const size_t chunks = stage.chunks.size(), first = static_cast<size_t>(at) * chunks;
  size_t blocks = 0;
  for (const auto& chunk : stage.chunks) blocks += chunk.size();
  if (blocks == 0) return publish;
  double lane = 0, late = 0;
  for (size_t c = 0; c < chunks; ++c) {
    double wanted = run.chunk_begin_ns[first + c] - run.begin_ns[static_cast<size_t>(at)];
    for (const BlockPiece& piece : stage.chunks[c]) {
      lane += publish / real(static_cast<int64_t>(blocks));
      late = std::max(late, lane - wanted);
      wanted += piece.forward;
    }
  }
  return late;
}

}  // namespace vitrine
