// Takes a file that several ranks were merged into apart.
#pragma once

#include <vector>

#include "readers/kineto_draft.h"

namespace vitrine {

// One draft a rank, in order of rank; the whole as it is when the file does not tell ranks apart.
// Which process is of which rank says, the first that does: what our `trace merge` noted, a number
// behind "rank" in a process's number, name or labels, the ranks that its collectives give. Work of
// a card that no process names goes with the call that launched it. Of files that were merged by
// others a warning of the first rank says by what they were taken apart.
std::vector<KinetoDraft> split_ranks(KinetoDraft draft);

}  // namespace vitrine
