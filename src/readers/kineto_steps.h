// Which spans are the training steps, and what belongs to which.
#pragma once

#include "readers/kineto_launches.h"

namespace vitrine {

// Of sorted spans. Every step gets a number of its own: a profiler that records in several cycles,
// or on several threads, may give one twice; the later one is numbered on from the highest, and
// keeps its name. A mark that lies inside another step, or mostly over it, is no step of its own:
// it becomes a region. Warns of both.
void tell_steps_apart(RankTimeline& timeline);

// Work of the host belongs to the step in whose window it begins, device work to the step in which
// it was launched.
void assign_steps(RankTimeline& timeline, const KinetoLaunches& launches);

}  // namespace vitrine
