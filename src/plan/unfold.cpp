// When the tasks of a step run.
#include "plan/unfold.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/error.h"
#include "core/format.h"
#include "plan/step_tasks.h"

namespace vitrine {
namespace {

// Lanes are servers that take their tasks in order.
void run(std::vector<StepTask>& tasks, int stages) {
  std::vector<std::vector<int>> lanes(static_cast<size_t>(stages * kStepLanes));
  std::vector<std::vector<int>> waited(tasks.size());  // lanes to look at again
  const auto lane_of = [](const StepEvent& e) {
    return static_cast<size_t>(e.stage * kStepLanes + static_cast<int>(e.lane));
  };
  for (size_t t = 0; t < tasks.size(); ++t) {
    lanes[lane_of(tasks[t].event)].push_back(static_cast<int>(t));
  }
  std::vector<size_t> next(lanes.size(), 0);
  std::vector<double> free_at(lanes.size(), 0);
  std::vector<char> done(tasks.size(), 0);
  std::vector<size_t> look;
  for (size_t l = 0; l < lanes.size(); ++l) look.push_back(l);
  while (!look.empty()) {
    const size_t l = look.back();
    look.pop_back();
    while (next[l] < lanes[l].size()) {
      const auto t = static_cast<size_t>(lanes[l][next[l]]);
      double ready = free_at[l];
      int missing = -1;
      for (const int other : tasks[t].after) {
        if (!done[static_cast<size_t>(other)]) {
          missing = other;
          break;
        }
        ready = std::max(ready, tasks[static_cast<size_t>(other)].event.end_ns);
      }
      if (missing >= 0) {
        waited[static_cast<size_t>(missing)].push_back(static_cast<int>(l));
        break;
      }
      tasks[t].event.begin_ns = ready;
      tasks[t].event.end_ns = free_at[l] = ready + tasks[t].duration;
      done[t] = 1;
      ++next[l];
      for (const int other : waited[t]) look.push_back(static_cast<size_t>(other));
    }
  }
  for (size_t l = 0; l < lanes.size(); ++l) {
    if (next[l] < lanes[l].size()) {
      throw ConfigError(
          format("pipeline: stage %zu waits for ever: the stages' orders do not fit "
                 "together",
                 l / kStepLanes));
    }
  }
}

// When the stage's next step can begin: when its own work is done, so much later as new weights
// would come too late for the forwards that want them.
double stage_end(const std::vector<const StepEvent*>& events, bool overlap) {
  double done = 0, begin = std::numeric_limits<double>::infinity(), end = 0;
  std::map<int, double> wanted;  // by block: its first forward
  for (const StepEvent* e : events) {
    if (e->work == StepWork::kPublish || e->work == StepWork::kSend) continue;
    done = std::max(done, e->end_ns);
    if (e->work != StepWork::kForward) continue;
    begin = std::min(begin, e->begin_ns);
    const auto [it, added] = wanted.emplace(e->block, e->begin_ns);
    if (!added) it->second = std::min(it->second, e->begin_ns);
  }
  double late = 0;
  for (const StepEvent* e : events) {
    if (e->work != StepWork::kPublish) continue;
    end = std::max(end, e->end_ns);
    late = std::max(late, e->end_ns - done - (wanted[e->block] - begin));
  }
  return overlap ? done + late : std::max(done, end);
}

}  // namespace

UnfoldedStep unfold_step(const ClusterStrategy& strategy, const StepPieces& pieces) {
  std::vector<StepTask> tasks = step_tasks(strategy, pieces);
  const int stages = pieces.times.size.stages;
  run(tasks, stages);
  UnfoldedStep out;
  out.work_end_ns.assign(static_cast<size_t>(stages), 0);
  std::vector<std::vector<const StepEvent*>> by_stage(static_cast<size_t>(stages));
  for (const StepTask& task : tasks) {
    const StepEvent& e = task.event;
    const auto at = static_cast<size_t>(e.stage);
    by_stage[at].push_back(&e);
    if (e.work == StepWork::kForward || e.work == StepWork::kBackward ||
        e.work == StepWork::kWeight) {
      out.work_end_ns[at] = std::max(out.work_end_ns[at], e.end_ns);
    }
    if (task.duration > 0 || e.work == StepWork::kSend) out.events.push_back(e);
  }
  out.begin_ns.assign(static_cast<size_t>(stages), 0);
  for (size_t stage = 0; stage < by_stage.size(); ++stage) {
    if (!stages_end_together(strategy) && !by_stage[stage].empty()) {
      out.begin_ns[stage] = by_stage[stage].front()->begin_ns;
    }
    const double end = stage_end(by_stage[stage], pieces.overlap_gather);
    out.step_ns = std::max(out.step_ns, end - out.begin_ns[stage]);
  }
  std::stable_sort(out.events.begin(), out.events.end(), [](const auto& a, const auto& b) {
    if (a.stage != b.stage) return a.stage < b.stage;
    return a.lane != b.lane ? a.lane < b.lane : a.begin_ns < b.begin_ns;
  });
  return out;
}

}  // namespace vitrine
