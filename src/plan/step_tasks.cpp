// Tasks of a step from its pieces.
#include "plan/step_tasks.h"

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

constexpr size_t kMostEvents = 20'000'000;

class Builder {
 public:
  Builder(const ClusterStrategy& strategy, const StepPieces& pieces)
      : s_(strategy), p_(pieces), size_(pieces.times.size) {
    const auto positions = static_cast<size_t>(size_.stages * size_.chunks);
    const auto micros = static_cast<size_t>(size_.micros);
    arrived_.assign(2, std::vector<int>(positions * micros, -1));
    needs_.assign(2, {});
    last_compute_.assign(static_cast<size_t>(size_.stages), -1);
    held_.assign(static_cast<size_t>(size_.stages), -1);
    barrier_.assign(static_cast<size_t>(size_.stages), -1);
  }

  void build() {
    const PipelineOrders orders = pipeline_orders(s_, p_.times);
    size_t expected = 0;
    for (const StagePieces& stage : p_.stages) {
      for (const auto& chunk : stage.chunks) {
        expected += chunk.size() * static_cast<size_t>(size_.micros) * 4;
      }
    }
    if (expected > kMostEvents) {
      throw ConfigError(
          format("the unfolded step would have %zu million events, at most %zu "
                 "million are written; use a smaller global batch",
                 expected / 1'000'000,
                 kMostEvents / 1'000'000));
    }
    for (int stage = 0; stage < size_.stages; ++stage) {
      const auto& order = orders[static_cast<size_t>(stage)];
      std::vector<size_t> last(static_cast<size_t>(size_.chunks));
      const bool apart = weight_gradients_apart(s_);
      const PipelineWork closing = apart ? PipelineWork::kWeight : PipelineWork::kBackward;
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i].work == closing) last[static_cast<size_t>(order[i].chunk)] = i;
      }
      for (size_t i = 0; i < order.size(); ++i) {
        const PipelineItem& item = order[i];
        pass(stage, item);
        if (item.work != closing) continue;
        const bool reduces = p_.reduce_rounds > 1 || last[static_cast<size_t>(item.chunk)] == i;
        if (reduces) reduce(stage, item);
      }
      finish(stage);
    }
    join();
  }

  std::vector<StepTask> take() { return std::move(tasks_); }

 private:
  const StagePieces& stage_of(int stage) const { return p_.stages[static_cast<size_t>(stage)]; }

  int add(int stage, StepLane lane, StepWork work, double duration, int block, int micro) {
    StepTask task;
    task.event.stage = stage;
    task.event.lane = lane;
    task.event.work = work;
    task.event.block = block;
    task.event.micro = micro;
    task.duration = duration;
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }

  // Of the block that a pass left for later.
  int reduce_held(int stage, StepLane lane, int micro) {
    int& held = held_[static_cast<size_t>(stage)];
    const int reduction =
        add(stage, lane, StepWork::kReduce, held_piece_->reduce, held_piece_->block, micro);
    after(reduction, held);
    held = -1;
    return reduction;
  }

  void after(int task, int other) {
    if (task >= 0 && other >= 0) tasks_[static_cast<size_t>(task)].after.push_back(other);
  }
  size_t place(int position, int micro) const {
    return static_cast<size_t>(position) * static_cast<size_t>(size_.micros) +
           static_cast<size_t>(micro);
  }
  int stage_at(int position) const {
    const int row = position / size_.stages, at = position % size_.stages;
    return p_.times.v_shaped && row % 2 == 1 ? size_.stages - 1 - at : at;
  }

  // One chunk's forward, backward or weight gradients of one micro-batch, block by block.
  void pass(int stage, const PipelineItem& item) {
    const auto& blocks = stage_of(stage).chunks[static_cast<size_t>(item.chunk)];
    const int position = pipeline_position(size_, stage, item.chunk, p_.times.v_shaped);
    const bool forward = item.work == PipelineWork::kForward;
    int& last = last_compute_[static_cast<size_t>(stage)];
    if (item.work == PipelineWork::kWeight) {
      for (size_t i = blocks.size(); i-- > 0;) {
        last = add(stage,
                   StepLane::kCompute,
                   StepWork::kWeight,
                   blocks[i].weight,
                   blocks[i].block,
                   item.micro);
      }
      return;
    }
    const StepWork work = forward ? StepWork::kForward : StepWork::kBackward;
    int& held = held_[static_cast<size_t>(stage)];
    int& barrier = barrier_[static_cast<size_t>(stage)];
    if (held >= 0) {
      // The reduction of the last pass's last block has all of this pass to hide behind.
      reduce_held(stage, StepLane::kSend, item.micro);
    }
    const int start = last;
    int gather = -1;  // of the block whose products come next
    if (forward && item.chunk == 0 && p_.overlap_gather && blocks[0].gather > 0) {
      gather = add(
          stage, StepLane::kData, StepWork::kGather, blocks[0].gather, blocks[0].block, item.micro);
      after(gather, start);
      need(gather, forward, position, item.micro);
    }
    for (size_t n = 0; n < blocks.size(); ++n) {
      const size_t i = forward ? n : blocks.size() - 1 - n;
      const BlockPiece& b = blocks[i];
      const bool again = forward || n > 0;  // the last block is still gathered from its forward
      if (!p_.overlap_gather && b.gather > 0 && again) {
        gather = add(stage, StepLane::kData, StepWork::kGather, b.gather, b.block, item.micro);
        tasks_.back().event.forward = forward;
        after(gather, last);
        if (n == 0) need(gather, forward, position, item.micro);
      }
      const int before = last, own_gather = gather;
      const double length = forward ? b.forward + b.slow : b.backward + b.slow_back;
      last = add(stage, StepLane::kCompute, work, length, b.block, item.micro);
      after(last, own_gather);
      // Two blocks' communication is never under way at once: what ran beside the block before is
      // done first.
      after(last, barrier);
      barrier = -1;
      if (n == 0) need(last, forward, position, item.micro);
      gather = -1;
      if (p_.overlap_gather && n + 1 < blocks.size()) {
        const BlockPiece& next = blocks[forward ? i + 1 : i - 1];
        if (next.gather > 0) {
          gather =
              add(stage, StepLane::kData, StepWork::kGather, next.gather, next.block, item.micro);
          tasks_.back().event.forward = forward;
          after(gather, before);
          after(gather, own_gather);
          if (n == 0) need(gather, forward, position, item.micro);
        }
      }
      if (held >= 0) {
        // The reduction of the block before, behind the gather that the next one waits for.
        barrier = add(stage,
                      StepLane::kData,
                      StepWork::kReduce,
                      held_piece_->reduce,
                      held_piece_->block,
                      item.micro);
        after(barrier, held);
        held = -1;
      }
      if (!forward && b.reduce > 0) {
        if (p_.overlap_reduce) {
          held = last;
          held_piece_ = &b;
        } else {
          const int reduction =
              add(stage, StepLane::kData, StepWork::kReduce, b.reduce, b.block, item.micro);
          after(reduction, last);
          last_reduce_ = reduction;
          const int wait = add(stage, StepLane::kCompute, work, 0, b.block, item.micro);
          after(wait, reduction);
          last = wait;
        }
      }
    }
    send(stage, item, position, forward, last);
  }

  // The task waits for what another position sends it.
  void need(int task, bool forward, int position, int micro) {
    const int positions = size_.stages * size_.chunks;
    const int from = forward ? position - 1 : position + 1;
    if (from < 0 || from >= positions) return;
    needs_[forward ? 0 : 1].push_back({task, place(from, micro)});
  }

  void send(int stage, const PipelineItem& item, int position, bool forward, int done) {
    const int to = forward ? position + 1 : position - 1;
    if (to < 0 || to >= size_.stages * size_.chunks) return;
    // Within a stage (the turn of ZB-V) the folded pipeline charges a transfer too.
    const int message =
        add(stage, StepLane::kSend, StepWork::kSend, p_.times.transfer_ns, -1, item.micro);
    tasks_.back().event.peer = stage_at(to);
    tasks_.back().event.forward = forward;
    after(message, done);
    arrived_[forward ? 0 : 1][place(position, item.micro)] = message;
  }

  // Gradients of a chunk's blocks, once a step: each after its backward.
  void reduce(int stage, const PipelineItem& item) {
    const StagePieces& own = stage_of(stage);
    if (own.reduce <= 0) return;
    const auto& blocks = own.chunks[static_cast<size_t>(item.chunk)];
    size_t all = 0;
    for (const auto& chunk : own.chunks) all += chunk.size();
    const double each = own.reduce / static_cast<double>(all);
    // The pass just built ends with these tasks, last block first.
    std::vector<int> computes;
    for (size_t t = tasks_.size(); t-- > 0 && computes.size() < blocks.size();) {
      const StepEvent& e = tasks_[t].event;
      if (e.lane == StepLane::kCompute && e.block >= 0) computes.push_back(static_cast<int>(t));
    }
    int& last = last_compute_[static_cast<size_t>(stage)];
    for (size_t i = computes.size(); i-- > 0;) {
      const StepEvent e = tasks_[static_cast<size_t>(computes[i])].event;
      const int reduction = add(stage, StepLane::kData, StepWork::kReduce, each, e.block, e.micro);
      after(reduction, p_.overlap_reduce ? computes[i] : last);
      last_reduce_ = reduction;
    }
    if (p_.reduce_rounds > 1) {
      last = add(stage, StepLane::kCompute, StepWork::kSlow, 0, -1, item.micro);
      after(last, last_reduce_);
    }
  }

  void finish(int stage) {
    const StagePieces& own = stage_of(stage);
    int& last = last_compute_[static_cast<size_t>(stage)];
    if (held_[static_cast<size_t>(stage)] >= 0) {
      last_reduce_ = reduce_held(stage, StepLane::kData, size_.micros - 1);
    }
    const int update = add(stage, StepLane::kCompute, StepWork::kUpdate, own.optimizer, -1, -1);
    after(update, last_reduce_);
    last_reduce_ = -1;
    last = update;
    if (own.slow > 0) last = add(stage, StepLane::kCompute, StepWork::kSlow, own.slow, -1, -1);
    if (own.offload > 0) {
      last = add(stage, StepLane::kCompute, StepWork::kOffload, own.offload, -1, -1);
    }
    if (own.publish > 0) {
      size_t all = 0;
      for (const auto& chunk : own.chunks) all += chunk.size();
      const double each = own.publish / static_cast<double>(all);
      for (const auto& chunk : own.chunks) {
        for (const BlockPiece& b : chunk) {
          after(add(stage, StepLane::kData, StepWork::kPublish, each, b.block, -1), last);
        }
      }
    }
  }

  // Messages are known now: who waits for which.
  void join() {
    for (size_t d = 0; d < needs_.size(); ++d) {
      for (const auto& [task, from] : needs_[d]) after(task, arrived_[d][from]);
    }
  }

  const ClusterStrategy& s_;
  const StepPieces& p_;
  PipelineSize size_;
  std::vector<StepTask> tasks_;
  std::vector<std::vector<int>> arrived_;                   // forward, backward; by place
  std::vector<std::vector<std::pair<int, size_t>>> needs_;  // task, place of the sender
  std::vector<int> last_compute_, held_, barrier_;
  const BlockPiece* held_piece_ = nullptr;
  int last_reduce_ = -1;
};

}  // namespace

std::vector<StepTask> step_tasks(const ClusterStrategy& strategy, const StepPieces& pieces) {
  Builder builder(strategy, pieces);
  builder.build();
  return builder.take();
}

}  // namespace vitrine
