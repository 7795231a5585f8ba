// What of a trace can't be read or trusted, in sentences.
#pragma once

#include "readers/kineto_draft.h"

namespace vitrine {

// Of sorted spans: kernels that overlap on one stream (kept), that last no time (kept), and those
// of AMD's cards whose durations run far beyond the next kernel's start (clipped to it).
void check_device_times(KinetoDraft& draft);

// Sentences for draft.damage.
void warn_of_damage(KinetoDraft& draft);

}  // namespace vitrine
