// Discrete events of a pipeline.
#include "plan/simulate.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// When the forward and the backward of (position, micro-batch) are done; kNever = not yet.
class Done {
 public:
  explicit Done(PipelineSize size)
      : micros_(size.micros),
        positions_(size.stages * size.chunks),
        forward_(static_cast<size_t>(positions_) * static_cast<size_t>(micros_), kNever),
        backward_(forward_) {}
  double& forward(int position, int micro) { return forward_[index(position, micro)]; }
  double& backward(int position, int micro) { return backward_[index(position, micro)]; }
  // Earliest moment at which the inputs of a work are on the stage.
  double ready(PipelineWork work, int position, int micro, double transfer) {
    if (work == PipelineWork::kForward) {
      return position == 0 ? 0 : forward(position - 1, micro) + transfer;
    }
    if (work == PipelineWork::kWeight) return backward(position, micro);
    const double own = forward(position, micro);
    if (position == positions_ - 1) return own;
    return std::max(own, backward(position + 1, micro) + transfer);
  }
  int positions() const { return positions_; }

 private:
  size_t index(int position, int micro) const {
    return static_cast<size_t>(position) * static_cast<size_t>(micros_) +
           static_cast<size_t>(micro);
  }
  int micros_, positions_;
  std::vector<double> forward_, backward_;
};

double duration(const PipelineTimes& times, int stage, const PipelineItem& item) {
  const ChunkTimes& c = times.chunk[static_cast<size_t>(stage * times.size.chunks + item.chunk)];
  switch (item.work) {
    case PipelineWork::kForward:
      return c.forward;
    case PipelineWork::kBackward:
      return c.backward;
    case PipelineWork::kWeight:
      return c.weight;
  }
  return 0;
}

// The stage that a finished work's result goes to, or -1.
int receiver(const PipelineTimes& times, const Done& done, int position, PipelineWork work) {
  const int next = work == PipelineWork::kForward ? position + 1 : position - 1;
  if (work == PipelineWork::kWeight || next < 0 || next >= done.positions()) return -1;
  const int chunk = next / times.size.stages, place = next % times.size.stages;
  return times.v_shaped && chunk % 2 == 1 ? times.size.stages - 1 - place : place;
}

}  // namespace

double PipelineResult::bubble_rate() const {
  double longest = 0, rate = 0;
  for (size_t s = 0; s < busy_ns.size(); ++s) {
    const double span = end_ns[s] - begin_ns[s];
    if (span <= longest) continue;
    longest = span;
    rate = 1 - busy_ns[s] / span;
  }
  return rate;
}

PipelineResult simulate_pipeline(const PipelineTimes& times,
                                 const PipelineOrders& orders,
                                 bool keep_spans) {
  const int stages = times.size.stages;
  const auto count = static_cast<size_t>(stages);
  Done done(times.size);
  PipelineResult result;
  result.busy_ns.assign(count, 0);
  result.end_ns.assign(count, 0);
  result.begin_ns.assign(count, 0);
  std::vector<size_t> next(count, 0);
  std::vector<int> work_list;
  std::vector<bool> listed(count, true);
  for (int s = stages; s-- > 0;) work_list.push_back(s);
  while (!work_list.empty()) {
    const int stage = work_list.back();
    const auto at = static_cast<size_t>(stage);
    work_list.pop_back();
    listed[at] = false;
    while (next[at] < orders[at].size()) {
      const PipelineItem& item = orders[at][next[at]];
      const int position = pipeline_position(times.size, stage, item.chunk, times.v_shaped);
      const double ready = done.ready(item.work, position, item.micro, times.transfer_ns);
      if (ready == kNever) break;
      const double begin = std::max(ready, result.end_ns[at]);
      const double length = duration(times, stage, item);
      if (next[at] == 0) result.begin_ns[at] = begin;
      const int to = receiver(times, done, position, item.work);
      if (item.work == PipelineWork::kForward) done.forward(position, item.micro) = begin + length;
      if (item.work == PipelineWork::kBackward) {
        done.backward(position, item.micro) = begin + length;
      }
      result.end_ns[at] = begin + length;
      if (times.blocking_transfer && to >= 0 && to != stage) {
        result.end_ns[at] += times.transfer_ns;
      }
      result.busy_ns[at] += length;
      if (keep_spans) result.spans.push_back({stage, item, begin, begin + length});
      if (to >= 0 && !listed[static_cast<size_t>(to)]) {
        listed[static_cast<size_t>(to)] = true;
        work_list.push_back(to);
      }
      ++next[at];
    }
  }
  for (int s = 0; s < stages; ++s) {
    const auto at = static_cast<size_t>(s);
    if (next[at] < orders[at].size()) {
      const PipelineItem& item = orders[at][next[at]];
      throw ConfigError(
          format("pipeline: stage %d waits for ever for chunk %d of micro-batch %d: the stages' "
                 "orders do not fit together",
                 s,
                 item.chunk,
                 item.micro));
    }
    result.makespan_ns = std::max(result.makespan_ns, result.end_ns[at]);
  }
  return result;
}

PipelineOrders zero_bubble_v_orders(const PipelineTimes& times, int limit) {
  const int stages = times.size.stages, micros = times.size.micros;
  const auto count = static_cast<size_t>(stages);
  PipelineOrders orders(count);
  Done done(times.size);
  std::vector<double> free_at(count, 0);
  std::vector<int> alive(count, 0);
  // The next micro-batch of (stage, chunk) by kind of work.
  std::vector<std::array<std::array<int, 2>, 3>> next(count);
  size_t left = count * static_cast<size_t>(micros) * 6;
  while (left > 0) {
    // Of all stages the one whose best candidate starts first.
    int stage = -1;
    PipelineItem best;
    double best_begin = kNever;
    for (int s = 0; s < stages; ++s) {
      const auto at = static_cast<size_t>(s);
      double own_begin = kNever;
      PipelineItem own;
      const auto consider = [&](PipelineWork work, int chunk) {
        const int micro = next[at][static_cast<size_t>(work)][static_cast<size_t>(chunk)];
        if (micro >= micros) return;
        const int position = pipeline_position(times.size, s, chunk, true);
        const double ready = done.ready(work, position, micro, times.transfer_ns);
        if (ready == kNever) return;
        const double begin = std::max(ready, free_at[at]);
        if (begin < own_begin) {
          own_begin = begin;
          own = {work, chunk, micro};
        }
      };
      // In order of preference at equal times: backwards, the way back first; forwards, the second
      // chunk first, as long as a first-chunk forward leaves room for its second; weights.
      consider(PipelineWork::kBackward, 1);
      consider(PipelineWork::kBackward, 0);
      if (alive[at] < limit) consider(PipelineWork::kForward, 1);
      // A first-chunk forward takes memory that its second chunk will need too.
      const int pending = next[at][0][0] - next[at][0][1];
      if (alive[at] + pending + 1 < limit) consider(PipelineWork::kForward, 0);
      // Weight gradients fill waiting time, and are forced where memory is full.
      const double waiting = own_begin;
      for (const int chunk : {1, 0}) {
        const int micro = next[at][2][static_cast<size_t>(chunk)];
        if (micro >= next[at][1][static_cast<size_t>(chunk)]) continue;
        const double length =
            times.chunk[static_cast<size_t>(s * times.size.chunks + chunk)].weight;
        if (waiting == kNever || free_at[at] + length <= waiting + 0.5 * length ||
            alive[at] >= limit) {
          const double begin = free_at[at];
          if (begin < own_begin) {
            own_begin = begin;
            own = {PipelineWork::kWeight, chunk, micro};
          }
        }
      }
      if (own_begin < best_begin) {
        best_begin = own_begin;
        best = own;
        stage = s;
      }
    }
    if (stage < 0)
      throw ConfigError("pipeline: ZB-V finds nothing to run: the memory limit is too small");
    const auto at = static_cast<size_t>(stage);
    const int position = pipeline_position(times.size, stage, best.chunk, true);
    const double end = best_begin + duration(times, stage, best);
    free_at[at] = end;
    if (best.work == PipelineWork::kForward) {
      done.forward(position, best.micro) = end;
      ++alive[at];
    } else if (best.work == PipelineWork::kBackward) {
      done.backward(position, best.micro) = end;
    } else {
      --alive[at];
    }
    ++next[at][static_cast<size_t>(best.work)][static_cast<size_t>(best.chunk)];
    orders[at].push_back(best);
    --left;
  }
  return orders;
}

}  // namespace vitrine
