// What only our own traces have: spans that say what they are, memory by category.
#pragma once

#include "readers/kineto_draft.h"

namespace vitrine {

// Gives spans the kinds, names, steps and blocks that the writer put down, and drops the launches
// that it made up. Before sorting.
void take_own_spans(KinetoDraft& draft);

// The writer numbers device work that had no correlation; what no host span shares is such a
// number.
void drop_made_up_correlations(RankTimeline& timeline);

// Counters, and of our own traces memory samples.
void take_counters(KinetoDraft& draft);

}  // namespace vitrine
