// Cuts each stage's compute into micro-batches at its messages.
#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/pipeline.h"

namespace vitrine {
namespace {

struct Part {
  int64_t begin, end, busy;
  bool forward;
};

class RankCells {
 public:
  RankCells(const RankFacts& rank,
            int32_t stage,
            int64_t offset,
            const StageMap& map,
            const std::vector<StageMessage>& messages,
            bool alternating,
            std::vector<PipelineFacts::Cell>& out)
      : rank_(rank),
        stage_(stage),
        offset_(offset),
        map_(map),
        messages_(messages_by_step(messages)),
        alternating_(alternating),
        out_(out) {
    for (const StepFacts& step : rank.steps) {
      if (step.device_begin_ns < step.device_end_ns) steps_.push_back(&step);
    }
    std::stable_sort(steps_.begin(), steps_.end(), [](const auto* a, const auto* b) {
      return a->device_begin_ns < b->device_begin_ns;
    });
  }

  void named() {
    // (step, micro-batch, forward, chunk's turn): a break in the order starts another cell.
    for (const WorkPiece& piece : rank_.work) {
      if (piece.micro_batch < 0) continue;
      if (piece.phase != Phase::kForward && piece.phase != Phase::kBackward) continue;
      add({piece.begin_ns, piece.end_ns, piece.busy_ns, piece.phase == Phase::kForward},
          piece.micro_batch,
          step_at(piece.begin_ns));
    }
  }

  void by_messages() {
    for (const StepFacts& step : rank_.steps) {
      if (step.device_begin_ns >= step.device_end_ns) continue;
      for (const bool forward : {true, false}) by_messages(step, forward);
    }
  }

 private:
  int32_t step_at(int64_t time) const {
    const auto after =
        std::upper_bound(steps_.begin(), steps_.end(), time, [](int64_t t, const StepFacts* step) {
          return t < step->device_begin_ns;
        });
    if (after == steps_.begin()) return -1;
    const StepFacts& step = **(after - 1);
    return time < step.device_end_ns ? step.step : -1;
  }

  // Where this direction's micro-batches end (its sends) or begin (its receives), in order.
  std::vector<int64_t> boundaries(int32_t step, bool forward, bool sends) const {
    std::vector<int64_t> result;
    const auto of_step = messages_.find(step);
    if (of_step == messages_.end()) return result;
    for (const StageMessage& message : of_step->second) {
      if (message.forward != forward || message.send != sends) continue;
      const CollectiveUse& use = rank_.collectives[static_cast<size_t>(message.use)];
      result.push_back(sends ? use.start_ns : use.start_ns + use.duration_ns);
    }
    std::sort(result.begin(), result.end());
    return result;
  }

  std::vector<Part> parts(const StepFacts& step) const {
    std::vector<Part> result;
    auto at = first_work(rank_, step.device_begin_ns);
    for (; at != rank_.work.end() && at->begin_ns < step.device_end_ns; ++at) {
      const WorkPiece& piece = *at;
      if (piece.phase != Phase::kForward && piece.phase != Phase::kBackward) continue;
      result.push_back(
          {piece.begin_ns, piece.end_ns, piece.busy_ns, piece.phase == Phase::kForward});
    }
    return result;
  }

  void by_messages(const StepFacts& step, bool forward) {
    const bool sends = forward ? stage_ + 1 < map_.stages : stage_ > 0;
    const std::vector<int64_t> limits = boundaries(step.step, forward, sends);
    if (limits.empty()) return;
    const auto count = static_cast<int32_t>(limits.size());
    const auto place = [&](int64_t time) {
      const auto passed = std::upper_bound(limits.begin(), limits.end(), time) - limits.begin();
      return static_cast<int32_t>(passed) - (sends ? 0 : 1);
    };
    // What runs forward after the last gradient has left is no micro-batch: a loss that is read.
    const std::vector<int64_t> gradients = boundaries(step.step, false, stage_ > 0);
    const int64_t over = forward && !gradients.empty() ? gradients.back() : step.device_end_ns;
    int32_t turn = 0;
    bool other_since = false;
    int64_t in_turn = 0;
    const int64_t half =
        step.phase_ns[static_cast<size_t>(forward ? Phase::kForward : Phase::kBackward)] / count /
        2;
    for (const Part& part : parts(step)) {
      if (part.forward != forward) {
        other_since = true;
        continue;
      }
      if (part.begin >= over || (!sends && part.begin < limits.front())) continue;
      // The last stage runs forward and backward in turn: receives come early, turns do not.
      if (alternating_ && forward && !sends) {
        if (other_since && in_turn > half) {
          ++turn;
          in_turn = 0;
        }
        other_since = false;
        in_turn += part.busy;
        if (turn < count) add(part, turn, step.step);
        continue;
      }
      cut(part, limits, [&](const Part& piece) {
        const int32_t micro_batch = place(piece.begin);
        if (micro_batch >= 0 && micro_batch < count) add(piece, micro_batch, step.step);
      });
    }
  }

  template <typename Take>
  static void cut(Part part, const std::vector<int64_t>& limits, Take take) {
    for (const int64_t limit : limits) {
      if (limit <= part.begin || limit >= part.end) continue;
      Part left = part;
      left.end = limit;
      take(left);
      part.begin = limit;
    }
    take(part);
  }

  void add(const Part& part, int32_t micro_batch, int32_t step) {
    const auto key = std::make_tuple(step, micro_batch, part.forward);
    const auto found = open_.find(key);
    if (found == open_.end()) {
      open_[key] = out_.size();
      out_.push_back({stage_,
                      rank_.rank,
                      micro_batch,
                      step,
                      part.forward,
                      part.begin + offset_,
                      part.end + offset_});
      return;
    }
    PipelineFacts::Cell& cell = out_[found->second];
    cell.begin_ns = std::min(cell.begin_ns, part.begin + offset_);
    cell.end_ns = std::max(cell.end_ns, part.end + offset_);
  }

  const RankFacts& rank_;
  const int32_t stage_;
  const int64_t offset_;
  const StageMap& map_;
  const std::map<int32_t, std::vector<StageMessage>> messages_;  // by step
  std::vector<const StepFacts*> steps_;                          // with device work, by its begin
  const bool alternating_;
  std::vector<PipelineFacts::Cell>& out_;
  std::map<std::tuple<int32_t, int32_t, bool>, size_t> open_;
};

}  // namespace

std::vector<PipelineFacts::Cell> pipeline_cells(const std::vector<RankFacts>& ranks,
                                                const std::vector<RankClock>& clocks,
                                                const StageMap& map,
                                                bool alternating) {
  std::vector<PipelineFacts::Cell> cells;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (map.stage_of[i] < 0) continue;
    RankCells rank_cells(
        ranks[i], map.stage_of[i], clocks[i].offset_ns, map, map.messages[i], alternating, cells);
    const bool named = std::any_of(ranks[i].work.begin(), ranks[i].work.end(), [](const auto& p) {
      return p.micro_batch >= 0;
    });
    if (named) {
      rank_cells.named();
    } else if (map.chunks == 1) {  // messages of several chunks do not tell which is which
      rank_cells.by_messages();
    }
  }
  std::stable_sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin_ns, a.rank) < std::tie(b.begin_ns, b.rank);
  });
  return cells;
}

}  // namespace vitrine
