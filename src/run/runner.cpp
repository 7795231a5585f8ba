// Lanes, dependencies and errors of the runner.
#include "run/runner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/short_slice.h"
#include "run/runner_names.h"

namespace vitrine {
Runner::Runner(const Graph& graph,
               const Strategy& strategy,
               const Schedule& schedule,
               ShardStore& store,
               LaneCommunicators& comms,
               const Execution& execution,
               MemoryLedger& ledger,
               Recorder* recorder,
               bool training)
    : graph_(graph),
      strategy_(strategy),
      schedule_(schedule),
      store_(store),
      comms_(comms),
      execution_(execution),
      ledger_(ledger),
      recorder_(recorder),
      training_(training),
      activations_(graph, forward_blocks(schedule), strategy.recompute, training, ledger),
      names_(std::make_unique<Names>(recorder, graph)) {
  scratch_ = Buffer(ledger,
                    MemoryCategory::kWorkspace,
                    "tape scratch",
                    static_cast<size_t>(scratch_bytes(graph, schedule.blocks, training)));
  make_graphs();
  done_.assign(schedule.actions.size(), 0);
  compute_lane_ = recorder ? recorder->lane(lane_name(LaneId::kCompute)) : -1;
  for (int i = 0; i < static_cast<int>(schedule.actions.size()); ++i) {
    const LaneId id = schedule.actions[static_cast<size_t>(i)].lane;
    if (id == LaneId::kCompute) {
      compute_actions_.push_back(i);
      continue;
    }
    auto it =
        std::find_if(lanes_.begin(), lanes_.end(), [&](auto& lane) { return lane->lane == id; });
    if (it == lanes_.end()) {
      lanes_.push_back(std::make_unique<LaneThread>());
      lanes_.back()->lane = id;
      if (recorder) lanes_.back()->recorder_lane = recorder->lane(lane_name(id));
      it = lanes_.end() - 1;
    }
    (*it)->actions.push_back(i);
  }
  for (auto& lane : lanes_) {
    lane->next = lane->actions.size();
    lane->thread = std::thread([this, &lane = *lane] { lane_loop(lane); });
  }
}

Runner::~Runner() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_all();
  for (auto& lane : lanes_) lane->thread.join();
  try {  // what a step leaves behind still uses the store, and peers' memory
    execution_.device->synchronize();
  } catch (const Error&) {  // the device is gone
  }
}

bool Runner::ready(const Action& action) const {
  return std::all_of(action.waits.begin(), action.waits.end(), [&](int wait) {
    return done_[static_cast<size_t>(wait)] != 0;
  });
}

bool Runner::can_go_on(const LaneThread& lane) const {
  if (lane.next >= lane.actions.size()) return false;
  const int index = lane.actions[lane.next];
  return index < gate_ && ready(schedule_.actions[static_cast<size_t>(index)]);
}

// Wakes those alone who can go on: a wake-up in vain costs a processor that computes.
void Runner::finished(int index, LaneThread* by) {
  std::array<std::condition_variable*, static_cast<size_t>(LaneId::kCount)> sleepers{};
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    done_[static_cast<size_t>(index)] = 1;
    if (by) ++by->next;
    for (const auto& lane : lanes_) {
      if (lane.get() != by && can_go_on(*lane)) sleepers[count++] = &lane->wake;
    }
    if (awaited_ && ready(*awaited_)) sleepers[count++] = &compute_wake_;
  }
  for (size_t i = 0; i < count; ++i) sleepers[i]->notify_one();
}

void Runner::wake_all() {
  for (const auto& lane : lanes_) lane->wake.notify_one();
  compute_wake_.notify_one();
}

void Runner::lane_loop(LaneThread& lane) {
  if (recorder_) recorder_->attach_thread();
  const ShortSlice beside_compute;
  try {
    execution_.device->enter_lane(static_cast<int>(lane.lane));
  } catch (...) {
    fail(std::current_exception());
  }
  for (;;) {
    int index = -1;
    {
      std::unique_lock lock(mutex_);
      lane.wake.wait(lock, [&] { return stop_ || (!error_ && can_go_on(lane)); });
      if (stop_) return;
      index = lane.actions[lane.next];
    }
    try {
      execute(index, lane.recorder_lane);
    } catch (...) {
      fail(std::current_exception());
      continue;
    }
    finished(index, &lane);
  }
}

void Runner::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  wake_all();
  // Other lanes may be inside a collective that will now never end.
  if (!comms_.alone()) comms_.world()->abort("an action failed");
}

void Runner::rethrow() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  std::rethrow_exception(error);
}

void Runner::wait_for(const Action& action) {
  std::unique_lock lock(mutex_);
  if (error_) {
    lock.unlock();
    rethrow();
  }
  if (ready(action)) return;
  const int64_t start = now_ns();
  awaited_ = &action;
  compute_wake_.wait(lock, [&] { return error_ || ready(action); });
  awaited_ = nullptr;
  const bool failed = error_ != nullptr;
  lock.unlock();
  const int64_t waited = now_ns() - start;
  const bool host = execution_.device->is_host();  // a GPU's lane waits by itself, and later
  if (host) output_.exposed_comm_ns += waited;
  if (host && recorder_ && recorder_->recording()) {
    SpanRecord span;
    span.start_ns = start;
    span.duration_ns = waited;
    span.name = names_->wait;
    span.kind = SpanKind::kSync;
    span.lane = compute_lane_;
    span.step = static_cast<int32_t>(input_.step);
    span.micro_batch = action.micro_batch;
    if (action.block >= 0) span.block = names_->blocks[static_cast<size_t>(action.block)];
    recorder_->span(span);
  }
  if (failed) rethrow();
}

void Runner::begin(const StepInput& input) {
  execution_.device->enter_lane(static_cast<int>(LaneId::kCompute));
  activations_.clear();
  if (graphs_) {
    graphs_->begin_step();
    execution_.device->order_free_blocks();
  }
  input_ = input;
  output_ = {};
  begin_ns_ = now_ns();
  begin_point_ = execution_.device->timed_point();
  execution_.math->begin();
  batch_loaded_.assign(static_cast<size_t>(strategy_.accumulation), false);
  next_compute_ = 0;
  if (training_) store_.begin_step();
  {
    const std::lock_guard lock(mutex_);
    std::fill(done_.begin(), done_.end(), 0);
    gate_ = 0;
    for (auto& lane : lanes_) lane->next = 0;
  }
}

void Runner::run_until(int end_action) {
  execution_.device->enter_lane(static_cast<int>(LaneId::kCompute));
  {
    const std::lock_guard lock(mutex_);
    gate_ = std::max(gate_, end_action);
  }
  wake_all();
  for (; next_compute_ < compute_actions_.size() && compute_actions_[next_compute_] < end_action;
       ++next_compute_) {
    const int index = compute_actions_[next_compute_];
    const Action& action = schedule_.actions[static_cast<size_t>(index)];
    wait_for(action);
    try {
      execute(index, compute_lane_);
    } catch (...) {
      fail(std::current_exception());
      throw;
    }
    finished(index, nullptr);
  }
}

StepOutput Runner::finish() {
  run_until(static_cast<int>(schedule_.actions.size()));
  Action everything;
  for (int i = 0; i < static_cast<int>(schedule_.actions.size()); ++i)
    everything.waits.push_back(i);
  wait_for(everything);
  // On the device the step ends when all lanes have, but for the publishing of what was updated,
  // which the next step's forward waits for block by block.
  for (const auto& lane : lanes_) {
    if (lane->actions.empty()) continue;
    const int last = lane->actions.back();
    if (schedule_.actions[static_cast<size_t>(last)].kind != ActionKind::kPublish)
      execution_.device->wait(last);
  }
  const std::shared_ptr<void> end_point = execution_.device->timed_point();
  try {
    load_next(compute_lane_);
    conclude();
    output_.device_ns = execution_.device->elapsed_ns(begin_point_, end_point);
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
  output_.duration_ns = now_ns() - begin_ns_;
  return output_;
}

double Runner::local_loss() {
  if (!execution_.device->is_host()) {
    execution_.device->synchronize();  // throws what kernels found wrong
    if (!comms_.alone()) comms_.world()->check();
  }
  return execution_.math->local_loss();
}

// What the step's work on the device came to.
void Runner::conclude() {
  execution_.device->synchronize_lane();
  output_.exposed_comm_ns += execution_.device->take_waited_ns();
  if (!comms_.alone()) comms_.world()->check();
  if (!training_) return;
  const StepSums sums = execution_.math->sums();
  output_.loss = sums.loss;
  output_.gradient_norm = sums.gradient_norm;
  output_.overflow = sums.overflow;
  output_.progress = sums.progress;
}

StepOutput Runner::step(const StepInput& input) {
  begin(input);
  return finish();
}

void Runner::hold_results(const std::vector<int>& edges) {
  for (const int edge : edges) activations_.hold(edge);
}

}  // namespace vitrine
