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
  explicit Done(const PipelineTimes& times)
      : stages_(times.size.stages),
        micros_(times.size.micros),
        positions_(times.size.stages * times.size.chunks),
        round_by_group_(times.round_by_group),
        forward_(static_cast<size_t>(positions_) * static_cast<size_t>(micros_), kNever),
        backward_(forward_) {}
  double& forward(int position, int micro) { return forward_[index(position, micro)]; }
  double& backward(int position, int micro) { return backward_[index(position, micro)]; }
  // Earliest moment at which the inputs of a work are on the stage.
  double ready(PipelineWork work, int position, int micro, double transfer) {
    const bool behind_group = round_by_group_ && micro % stages_ != 0;
    if (work == PipelineWork::kForward) {
      const bool round = position % stages_ == 0;
      if (position == 0 || (round && behind_group)) return 0;
      return forward(position - 1, micro) + transfer;
    }
    if (work == PipelineWork::kWeight) return backward(position, micro);
    const double own = forward(position, micro);
    const bool round = position % stages_ == stages_ - 1;
    if (position == positions_ - 1 || (round && behind_group)) return own;
    return std::max(own, backward(position + 1, micro) + transfer);
  }
  int positions() const { return positions_; }

 private:
  size_t index(int position, int micro) const {
    return static_cast<size_t>(position) * static_cast<size_t>(micros_) +
           static_cast<size_t>(micro);
  }
  int stages_, micros_, positions_;
  bool round_by_group_;
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
  Done done(times);
  PipelineResult result;
  result.busy_ns.assign(count, 0);
  result.end_ns.assign(count, 0);
  result.begin_ns.assign(count, 0);
  result.chunk_begin_ns.assign(count * static_cast<size_t>(times.size.chunks), 0);
  result.chunk_end_ns = result.chunk_begin_ns;
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
      result.busy_ns[at] += length;
      const auto chunk = static_cast<size_t>(stage * times.size.chunks + item.chunk);
      if (item.work == PipelineWork::kForward) {
        if (item.micro == 0) result.chunk_begin_ns[chunk] = begin;
      } else {
        result.chunk_end_ns[chunk] = begin + length;
      }
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

namespace {

// What a stage of ZB-V would run next, decided anew only when something it waits for has ended.
struct Choice {
  PipelineItem item;
  double begin = kNever;
};

class ZeroBubbleV {
 public:
  ZeroBubbleV(const PipelineTimes& times, int limit)
      : times_(times),
        limit_(limit),
        stages_(times.size.stages),
        done_(times),
        free_at_(static_cast<size_t>(stages_), 0),
        alive_(static_cast<size_t>(stages_), 0),
        next_(static_cast<size_t>(stages_)),
        choice_(static_cast<size_t>(stages_)) {}

  PipelineOrders run() {
    PipelineOrders orders(static_cast<size_t>(stages_));
    for (int s = 0; s < stages_; ++s) choice_[static_cast<size_t>(s)] = choose(s);
    size_t left = static_cast<size_t>(stages_) * static_cast<size_t>(times_.size.micros) * 6;
    for (; left > 0; --left) {
      // Of all stages the one whose choice starts first.
      size_t at = 0;
      for (size_t s = 1; s < choice_.size(); ++s) {
        if (choice_[s].begin < choice_[at].begin) at = s;
      }
      const Choice best = choice_[at];
      if (best.begin == kNever)
        throw ConfigError("pipeline: ZB-V finds nothing to run: the memory limit is too small");
      const int stage = static_cast<int>(at);
      const int position = pipeline_position(times_.size, stage, best.item.chunk, true);
      const double end = best.begin + duration(times_, stage, best.item);
      free_at_[at] = end;
      if (best.item.work == PipelineWork::kForward) {
        done_.forward(position, best.item.micro) = end;
        ++alive_[at];
      } else if (best.item.work == PipelineWork::kBackward) {
        done_.backward(position, best.item.micro) = end;
      } else {
        --alive_[at];
      }
      ++next_[at][static_cast<size_t>(best.item.work)][static_cast<size_t>(best.item.chunk)];
      orders[at].push_back(best.item);
      choice_[at] = choose(stage);
      const int to = receiver(times_, done_, position, best.item.work);
      if (to >= 0 && to != stage) choice_[static_cast<size_t>(to)] = choose(to);
    }
    return orders;
  }

 private:
  Choice choose(int s) {
    const auto at = static_cast<size_t>(s);
    Choice own;
    const auto consider = [&](PipelineWork work, int chunk) {
      const int micro = next_[at][static_cast<size_t>(work)][static_cast<size_t>(chunk)];
      if (micro >= times_.size.micros) return;
      const int position = pipeline_position(times_.size, s, chunk, true);
      const double ready = done_.ready(work, position, micro, times_.transfer_ns);
      if (ready == kNever) return;
      const double begin = std::max(ready, free_at_[at]);
      if (begin < own.begin) own = {{work, chunk, micro}, begin};
    };
    // In order of preference at equal times: backwards, the way back first; forwards, the second
    // chunk first, as long as a first-chunk forward leaves room for its second; weights.
    consider(PipelineWork::kBackward, 1);
    consider(PipelineWork::kBackward, 0);
    if (alive_[at] < limit_) consider(PipelineWork::kForward, 1);
    // A first-chunk forward takes memory that its second chunk will need too.
    const int pending = next_[at][0][0] - next_[at][0][1];
    if (alive_[at] + pending + 1 < limit_) consider(PipelineWork::kForward, 0);
    // Weight gradients fill waiting time, and are forced where memory is full.
    const double waiting = own.begin;
    for (const int chunk : {1, 0}) {
      const int micro = next_[at][2][static_cast<size_t>(chunk)];
      if (micro >= next_[at][1][static_cast<size_t>(chunk)]) continue;
      const double length =
          times_.chunk[static_cast<size_t>(s * times_.size.chunks + chunk)].weight;
      if (waiting == kNever || free_at_[at] + length <= waiting + 0.5 * length ||
          alive_[at] >= limit_) {
        if (free_at_[at] < own.begin) own = {{PipelineWork::kWeight, chunk, micro}, free_at_[at]};
      }
    }
    return own;
  }

  const PipelineTimes& times_;
  int limit_, stages_;
  Done done_;
  std::vector<double> free_at_;
  std::vector<int> alive_;
  // The next micro-batch of (stage, kind of work, chunk).
  std::vector<std::array<std::array<int, 2>, 3>> next_;
  std::vector<Choice> choice_;
};

}  // namespace

PipelineOrders zero_bubble_v_orders(const PipelineTimes& times, int limit) {
  return ZeroBubbleV(times, limit).run();
}

}  // namespace vitrine
