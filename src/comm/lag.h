// The sentence that says which rank the others wait for.
#pragma once

#include <cstdint>
#include <string>

namespace vitrine {

// "rank 1 has not entered reduce of body.3 in step 7 (it was last in backward of body.0, step 6)".
inline std::string lag_sentence(int rank,
                                int64_t step,
                                const std::string& what,
                                int64_t its_step,
                                const std::string& its_what) {
  std::string text = "rank " + std::to_string(rank) + " has not entered " +
                     (what.empty() ? "the collective" : what);
  if (step >= 0) text += " in step " + std::to_string(step);
  if (its_what.empty()) return text;
  return text + " (it was last in " + its_what + ", step " + std::to_string(its_step) + ")";
}

}  // namespace vitrine
