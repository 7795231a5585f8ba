// What the software of a published measurement does where its columns do not say: fused kernels,
// precision of states, when gradients are reduced, how a loss keeps its logits.
#pragma once

#include <string>

#include "plan/measurements.h"

namespace vitrine {

// Software and years whose rows share fitted constants, and what is assumed before any row is
// looked at.
struct SoftwareEra {
  const char* name;
  double launch_ns, communication;
};

// Sets model, cluster and strategy of `m` as the software of its source (found by a part of the
// name) and the row's notes say; nothing here depends on what was measured.
const SoftwareEra& apply_software(Measurement& m, const std::string& notes);

}  // namespace vitrine
