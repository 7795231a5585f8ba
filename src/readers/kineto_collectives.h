// Collectives of kernels: those that the kernel does not name itself, and their numbers.
#pragma once

#include "readers/kineto_draft.h"
#include "readers/kineto_launches.h"

namespace vitrine {

// A kernel without collective arguments (batched sends and receives, old versions) has those of the
// call in which it was launched, or of the sends and receives that were batched before its launch.
// Of sorted spans.
void find_collectives(KinetoDraft& draft, const KinetoLaunches& launches);

// Gives collectives their ranks and order numbers, and drops those that no span has.
void number_collectives(KinetoDraft& draft);

}  // namespace vitrine
