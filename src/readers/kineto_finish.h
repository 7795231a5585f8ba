// What can be said about a trace only when all of its events are known.
#pragma once

#include "readers/kineto_draft.h"

namespace vitrine {

// Names lanes, gives spans their steps, kernels their collectives, groups their ranks, collectives
// their numbers; sorts; and warns of what can't be trusted.
RankTimeline finish_kineto(KinetoDraft draft);

}  // namespace vitrine
