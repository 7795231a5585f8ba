// Checks of every collective against plain arithmetic, the same for threads and for processes.
#pragma once

#include "comm/communicator.h"

namespace vitrine::testing {

// Run by every rank of the group at the same time. Throws std::runtime_error at the first
// difference, so that ranks without GoogleTest can use it too.
void check_collectives(Communicator& communicator);

}  // namespace vitrine::testing
