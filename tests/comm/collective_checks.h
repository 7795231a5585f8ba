// Checks of every collective against plain arithmetic, the same for threads and for processes.
#pragma once

#include "comm/communicator.h"

namespace vitrine::testing {

// What sums must be: those in rank order, rounded once, bit for bit; or, where a transport chooses
// the order, those of small whole numbers, which every order gives.
enum class Sums { kRankOrder, kAnyOrder };

// Run by every rank of the group at the same time. Throws std::runtime_error at the first
// difference, so that ranks without GoogleTest can use it too.
void check_collectives(Communicator& communicator, Sums sums = Sums::kRankOrder);

}  // namespace vitrine::testing
