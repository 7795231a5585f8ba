// Words for phases, kernel classes and causes of idleness.
#include <array>

#include "analysis/rank_facts.h"

namespace vitrine {

const char* phase_name(Phase phase) {
  constexpr std::array<const char*, kPhases> kNames = {"forward", "backward", "optimizer", "other"};
  return kNames[static_cast<size_t>(phase)];
}

const char* kernel_class_name(KernelClass kind) {
  constexpr std::array<const char*, kKernelClasses> kNames = {"matrix product",
                                                              "attention",
                                                              "convolution",
                                                              "normalisation",
                                                              "elementwise",
                                                              "reduction",
                                                              "embedding",
                                                              "optimizer",
                                                              "other"};
  return kNames[static_cast<size_t>(kind)];
}

const char* idle_cause_name(IdleCause cause) {
  constexpr std::array<const char*, kIdleCauses> kNames = {"host launching",
                                                           "host synchronisation",
                                                           "data loading",
                                                           "region",
                                                           "waiting for another stream",
                                                           "graph replay",
                                                           "profiler",
                                                           "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

}  // namespace vitrine
