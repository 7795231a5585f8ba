// The discrete-event simulation of the engine's ranks.
#include "plan/engine_time.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "core/error.h"
#include "plan/engine_work.h"

namespace vitrine {
namespace {

constexpr auto kLanes = static_cast<size_t>(LaneId::kCount);
constexpr auto kComputeLane = static_cast<size_t>(LaneId::kCompute);

struct LaneState {
  std::vector<int> actions;
  size_t next = 0;
  bool running = false;
  size_t phase = 0;
  double idle_since_ns = 0;
};

struct RankState {
  const Schedule* schedule = nullptr;
  const EngineWork* work = nullptr;
  std::array<LaneState, kLanes> lanes;
  std::vector<char> done;
  EngineRankTime time;
};

struct Member {
  int rank = 0;
  size_t lane = 0;
};

// What runs now: one rank's phase, or a meeting of several.
struct Task {
  double left_ns = 0, cores = 0;
  std::vector<Member> members;
};

class Simulation {
 public:
  Simulation(const std::vector<Schedule>& schedules,
             const std::vector<EngineWork>& works,
             const MeasuredCosts& costs)
      : cpus_(costs.cpus()), handoff_ns_(costs.handoff_ns()), ranks_(schedules.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      RankState& rank = ranks_[r];
      rank.schedule = &schedules[r];
      rank.work = &works[r];
      rank.done.assign(schedules[r].actions.size(), 0);
      rank.time.actions.resize(schedules[r].actions.size());
      for (size_t i = 0; i < schedules[r].actions.size(); ++i)
        rank.lanes[static_cast<size_t>(schedules[r].actions[i].lane)].actions.push_back(
            static_cast<int>(i));
    }
  }

  void run() {
    for (;;) {
      begin_ready();
      if (tasks_.empty()) break;
      advance();
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const LaneState& lane : ranks_[r].lanes) {
        if (lane.next < lane.actions.size()) {
          throw ConfigError("the schedules wait for each other in a circle: rank " +
                            std::to_string(r) + " stops before action " +
                            std::to_string(lane.actions[lane.next]));
        }
      }
    }
  }

  std::vector<EngineRankTime> take() {
    std::vector<EngineRankTime> times;
    for (RankState& rank : ranks_) times.push_back(std::move(rank.time));
    return times;
  }

 private:
  // One pass is enough for lanes whose fronts wait; an action without work ends here and may let
  // others begin, so until nothing moves.
  void begin_ready() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
        for (size_t l = 0; l < kLanes; ++l) moved = begin(r, l) || moved;
      }
    }
  }

  bool begin(int r, size_t l) {
    RankState& rank = ranks_[static_cast<size_t>(r)];
    LaneState& lane = rank.lanes[l];
    if (lane.running || lane.next == lane.actions.size()) return false;
    const int index = lane.actions[lane.next];
    const Action& action = rank.schedule->actions[static_cast<size_t>(index)];
    const bool ready = std::all_of(action.waits.begin(), action.waits.end(), [&](int wait) {
      return rank.done[static_cast<size_t>(wait)] != 0;
    });
    if (!ready) return false;
    lane.running = true;
    lane.phase = 0;
    const bool slept = !action.waits.empty() && now_ns_ > lane.idle_since_ns;
    if (slept) {
      tasks_.push_back({handoff_ns_, 0, {{r, l}}});
      lane.phase = kWaking;
      return true;
    }
    open(rank, index);
    start_phase(r, l);
    return true;
  }

  void open(RankState& rank, int index) {
    rank.time.actions[static_cast<size_t>(index)].begin_ns = now_ns_;
    rank.time.order.push_back({index, false});
  }

  void start_phase(int r, size_t l) {
    RankState& rank = ranks_[static_cast<size_t>(r)];
    LaneState& lane = rank.lanes[l];
    const int index = lane.actions[lane.next];
    const std::vector<WorkPhase>& phases = rank.work->phases(index);
    while (lane.phase < phases.size() && phases[lane.phase].meeting.ranks == 0 &&
           phases[lane.phase].ns <= 0)
      ++lane.phase;
    if (lane.phase == phases.size()) return close(rank, lane, index);
    const WorkPhase& phase = phases[lane.phase];
    if (phase.meeting.ranks == 0) {
      tasks_.push_back({phase.ns, phase.cores, {{r, l}}});
      return;
    }
    Task& meeting = meetings_[phase.meeting];
    meeting.members.push_back({r, l});
    // Ranks with larger pieces set the pace.
    meeting.left_ns = std::max(meeting.left_ns, phase.ns);
    meeting.cores += phase.cores;
    if (static_cast<int>(meeting.members.size()) < phase.meeting.ranks) return;
    tasks_.push_back(std::move(meeting));
    meetings_.erase(phase.meeting);
  }

  void close(RankState& rank, LaneState& lane, int index) {
    rank.time.actions[static_cast<size_t>(index)].end_ns = now_ns_;
    rank.time.order.push_back({index, true});
    rank.time.end_ns = now_ns_;
    rank.done[static_cast<size_t>(index)] = 1;
    lane.running = false;
    lane.idle_since_ns = now_ns_;
    ++lane.next;
  }

  // To the next end of a task. Tasks share the processors by what they can use; what sleeps
  // (no cores) does not slow down.
  void advance() {
    double wanted = 0;
    for (const Task& task : tasks_) wanted += task.cores;
    const double rate = wanted > cpus_ ? cpus_ / wanted : 1;
    double step = std::numeric_limits<double>::max();
    for (const Task& task : tasks_)
      step = std::min(step, task.left_ns / (task.cores > 0 ? rate : 1));
    now_ns_ += step;
    std::vector<Task> ended;
    for (Task& task : tasks_) {
      task.left_ns -= step * (task.cores > 0 ? rate : 1);
      if (task.left_ns <= 1e-6) ended.push_back(std::move(task));
    }
    std::erase_if(tasks_, [](const Task& task) { return task.members.empty(); });
    for (const Task& task : ended) {
      for (const Member& member : task.members) end_phase(member);
    }
  }

  void end_phase(const Member& member) {
    RankState& rank = ranks_[static_cast<size_t>(member.rank)];
    LaneState& lane = rank.lanes[member.lane];
    if (lane.phase == kWaking) {
      open(rank, lane.actions[lane.next]);
      lane.phase = 0;
    } else {
      ++lane.phase;
    }
    start_phase(member.rank, member.lane);
  }

  static constexpr size_t kWaking = std::numeric_limits<size_t>::max();

  double cpus_, handoff_ns_, now_ns_ = 0;
  std::vector<RankState> ranks_;
  std::vector<Task> tasks_;
  std::map<Meeting, Task> meetings_;  // that some ranks have not come to
};

// Splits the compute lane's time by what it did; what is left of it is waiting.
EngineStepParts parts_of(const Schedule& schedule, const EngineRankTime& time, double step_ns) {
  EngineStepParts parts;
  double busy = 0;
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& action = schedule.actions[i];
    if (static_cast<size_t>(action.lane) != kComputeLane) continue;
    const double ns = time.actions[i].end_ns - time.actions[i].begin_ns;
    switch (action.kind) {
      case ActionKind::kForward:
        parts.forward_ns += ns;
        break;
      case ActionKind::kBackward:
        parts.recompute_ns += ns * time.actions[i].recompute_share;
        parts.backward_ns += ns * (1 - time.actions[i].recompute_share);
        break;
      case ActionKind::kUpdate:
        parts.optimizer_ns += ns;
        break;
      case ActionKind::kNorm: {
        const double own = std::min(ns, time.actions[i].work_ns);
        parts.optimizer_ns += own;
        busy -= ns - own;
        break;
      }
      default:
        continue;
    }
    busy += ns;
  }
  parts.communication_ns = std::max(0.0, step_ns - busy);
  return parts;
}

}  // namespace

EngineStepTime simulate_engine(const Graph& graph,
                               const Strategy& strategy,
                               const std::vector<Schedule>& schedules,
                               const MeasuredCosts& costs) {
  if (static_cast<int>(schedules.size()) != strategy.mesh.world()) {
    throw ConfigError("the simulation got " + std::to_string(schedules.size()) + " schedules for " +
                      std::to_string(strategy.mesh.world()) + " ranks");
  }
  std::vector<EngineWork> works;
  works.reserve(schedules.size());
  for (const Schedule& schedule : schedules) works.emplace_back(graph, strategy, schedule, costs);
  Simulation simulation(schedules, works, costs);
  simulation.run();
  EngineStepTime result;
  result.ranks = simulation.take();
  for (const EngineRankTime& rank : result.ranks)
    result.step_ns = std::max(result.step_ns, rank.end_ns);
  for (size_t r = 0; r < schedules.size(); ++r) {
    EngineRankTime& rank = result.ranks[r];
    for (size_t i = 0; i < rank.actions.size(); ++i) {
      const int index = static_cast<int>(i);
      double local = 0, all = 0;
      for (const WorkPhase& phase : works[r].phases(index)) {
        all += phase.ns;
        local += phase.meeting.ranks == 0 ? phase.ns : 0;
      }
      rank.actions[i].work_ns = schedules[r].actions[i].kind == ActionKind::kNorm ? local : all;
      if (all > 0) rank.actions[i].recompute_share = works[r].recompute_ns(index) / all;
    }
    rank.parts = parts_of(schedules[r], rank, rank.end_ns);
  }
  return result;
}

}  // namespace vitrine
