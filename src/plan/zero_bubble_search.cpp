// Greedy construction of zero-bubble schedules.
#include "plan/zero_bubble_search.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

// The binary choices that the greedy rules leave open.
struct Choices {
  bool early_forward;  // one forward more in the warm-up although the first backward waits for it
  bool skip_forward;   // a stage that is two ahead of the next leaves a forward out for a backward
  bool spare_weight;   // gaps that do not make the longest idle time longer are left open
};

class Greedy {
 public:
  Greedy(const PipelineTimes& times, double limit, Choices choices)
      : times_(times),
        limit_(limit + 1e-9),
        held_(times.weight_held),
        choices_(choices),
        stages_(times.size.stages),
        micros_(times.size.micros),
        stage_(static_cast<size_t>(stages_)),
        orders_(static_cast<size_t>(stages_)) {
    for (Stage& s : stage_) {
      s.forward_end.reserve(static_cast<size_t>(micros_));
      s.backward_end.reserve(static_cast<size_t>(micros_));
    }
  }

  PipelineOrders run() {
    warm_up();
    for (int round = 1; round < micros_; ++round) {
      forwards();
      for (int s = stages_; s-- > 0;) {
        if (s + 1 < stages_) fill(s, backward_arrival(s));
        // Nobody waits for the first stage's backwards once its forwards are done.
        while (s == 0 && at(s).forwards() == micros_ && waiting(s)) weight(s);
        backward(s);
      }
    }
    for (int s = 0; s < stages_; ++s) {
      while (waiting(s)) weight(s);
    }
    return std::move(orders_);
  }

 private:
  struct Stage {
    std::vector<double> forward_end, backward_end;
    int weights = 0;
    double clock = 0, idle = 0, alive = 0;
    int forwards() const { return static_cast<int>(forward_end.size()); }
    int backwards() const { return static_cast<int>(backward_end.size()); }
  };

  Stage& at(int s) { return stage_[static_cast<size_t>(s)]; }
  const ChunkTimes& cost(int s) const { return times_.chunk[static_cast<size_t>(s)]; }
  bool waiting(int s) { return at(s).weights < at(s).backwards(); }

  // When the inputs of the next work are on the stage.
  double forward_arrival(int s) {
    return at(s - 1).forward_end[static_cast<size_t>(at(s).forwards())] + times_.transfer_ns;
  }
  double backward_arrival(int s) {
    return at(s + 1).backward_end[static_cast<size_t>(at(s).backwards())] + times_.transfer_ns;
  }

  void pass(int s, double arrival, double length) {
    Stage& own = at(s);
    const double begin = std::max(own.clock, arrival);
    if (own.forwards() > 0) own.idle += begin - own.clock;
    own.clock = begin + length;
  }
  void forward(int s) {
    const int micro = at(s).forwards();
    pass(s, s > 0 ? forward_arrival(s) : 0, cost(s).forward);
    at(s).forward_end.push_back(at(s).clock);
    at(s).alive += 1;
    orders_[static_cast<size_t>(s)].push_back({PipelineWork::kForward, 0, micro});
  }
  void backward(int s) {
    const int micro = at(s).backwards();
    pass(s, s + 1 < stages_ ? backward_arrival(s) : 0, cost(s).backward);
    at(s).backward_end.push_back(at(s).clock);
    at(s).alive -= 1 - held_;
    orders_[static_cast<size_t>(s)].push_back({PipelineWork::kBackward, 0, micro});
  }
  void weight(int s) {
    pass(s, 0, cost(s).weight);
    at(s).alive -= held_;
    orders_[static_cast<size_t>(s)].push_back({PipelineWork::kWeight, 0, at(s).weights++});
  }

  double spare_idle(int s) {
    double longest = 0;
    for (const Stage& other : stage_) longest = std::max(longest, other.idle);
    return longest - at(s).idle;
  }

  // Weight gradients into the gap before `until`; the last one may reach beyond it.
  void fill(int s, double until) {
    while (waiting(s) && at(s).clock + cost(s).weight <= until) weight(s);
    if (!waiting(s) || at(s).clock >= until) return;
    if (!choices_.spare_weight || until - at(s).clock > spare_idle(s)) weight(s);
  }

  // As many forwards as memory and the first backward's arrival allow, always fewer than the stage
  // before has; then the first backwards.
  void warm_up() {
    std::vector<int> more(static_cast<size_t>(stages_), 0);
    for (int s = 0; s < stages_; ++s) forward(s);
    double arrival = 0;
    for (int s = stages_; s-- > 0;) {
      double clock = at(s).clock;
      int& extra = more[static_cast<size_t>(s)];
      while (s + 1 < stages_ && extra + 1 < micros_ && extra + 2 <= limit_ &&
             (choices_.early_forward ? clock < arrival : clock + cost(s).forward <= arrival)) {
        clock += cost(s).forward;
        ++extra;
      }
      arrival = std::max(clock, arrival) + cost(s).backward + times_.transfer_ns;
    }
    for (size_t s = 1; s < more.size(); ++s) {
      if (more[s - 1] + 1 < micros_) more[s] = std::clamp(more[s - 1] - 1, 0, more[s]);
    }
    for (int s = 0; s < stages_; ++s) {
      for (int i = 0; i < more[static_cast<size_t>(s)]; ++i) forward(s);
    }
    for (int s = stages_; s-- > 0;) backward(s);
  }

  // Whether the stage should run a forward now, seen from itself alone.
  bool wants_forward(int s) {
    const Stage& own = at(s);
    if (own.forwards() >= micros_) return false;
    if (!choices_.skip_forward || s + 1 >= stages_) return true;
    Stage& next = at(s + 1);
    if (own.forwards() < next.forwards() + 2) return true;
    // The next stage has a forward in hand: it may send a backward at this time.
    const double backward =
        next.clock + cost(s + 1).forward + cost(s + 1).backward + times_.transfer_ns;
    if (own.clock >= backward) return false;
    double alive = own.alive + 1, room = 0;
    for (int w = own.weights; alive > limit_ && w < own.backwards(); ++w) {
      alive -= held_;
      room += cost(s).weight;
    }
    if (own.clock + room + cost(s).forward <= backward) return true;
    return backward - own.clock > spare_idle(s);
  }

  void forwards() {
    std::vector<bool> wanted(static_cast<size_t>(stages_));
    for (int s = stages_; s-- > 0;) {
      const auto i = static_cast<size_t>(s);
      wanted[i] = wants_forward(s) && (s + 1 == stages_ || wanted[i + 1]);
    }
    for (int s = 0; s < stages_; ++s) {
      if (!wanted[static_cast<size_t>(s)]) continue;
      while (at(s).alive + 1 > limit_ && waiting(s)) weight(s);
      if (s > 0) fill(s, forward_arrival(s));
      forward(s);
    }
  }

  const PipelineTimes& times_;
  double limit_, held_;
  Choices choices_;
  int stages_, micros_;
  std::vector<Stage> stage_;
  PipelineOrders orders_;
};

// Of all stages, the longest time from the first work to the last.
double longest_span(const PipelineTimes& times, const PipelineOrders& orders) {
  const PipelineResult run = simulate_pipeline(times, orders);
  double longest = 0;
  for (size_t s = 0; s < run.end_ns.size(); ++s) {
    longest = std::max(longest, run.end_ns[s] - run.begin_ns[s]);
  }
  return longest;
}

// Largest memory of a stage in micro-batches, backward giving back 1 - held.
double most_alive(const std::vector<PipelineItem>& order, double held) {
  double alive = 0, most = 0;
  for (const PipelineItem& item : order) {
    alive += item.work == PipelineWork::kForward    ? 1
             : item.work == PipelineWork::kBackward ? held - 1
                                                    : -held;
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

PipelineOrders zero_bubble_search_orders(const PipelineTimes& times, int limit) {
  if (limit < 1 || times.size.chunks != 1) {
    throw ConfigError(
        format("pipeline: a searched zero-bubble schedule has one chunk a stage and room for a "
               "micro-batch, not %d chunks and %d micro-batches",
               times.size.chunks,
               limit));
  }
  PipelineOrders best;
  double shortest = std::numeric_limits<double>::infinity();
  const auto consider = [&](PipelineOrders orders) {
    for (const auto& order : orders) {
      if (most_alive(order, times.weight_held) > limit + 1e-6) return;
    }
    const double span = longest_span(times, orders);
    if (span >= shortest) return;
    shortest = span;
    best = std::move(orders);
  };
  for (const bool twice : {false, true}) {
    PipelineOrders orders;
    for (int s = 0; s < times.size.stages; ++s) {
      orders.push_back(zero_bubble_order(times.size, s, twice));
    }
    consider(std::move(orders));
  }
  for (int bits = 0; bits < 8; ++bits) {
    const Choices choices{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
    consider(Greedy(times, limit, choices).run());
  }
  return best;
}

}  // namespace vitrine
