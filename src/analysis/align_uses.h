// Lines up two ranks' calls of one communicator, whose windows may begin and end at different
// places.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vitrine {

// One call, as far as alignment looks at it. Times on clocks that may differ by a constant.
struct AlignedUse {
  std::string name;  // "" = not known
  int64_t bytes = 0;
  int64_t start_ns = 0, end_ns = 0;
  int64_t sequence = -1;
  int32_t step = -1;
};

// Whether both can be the two sides of one call; what is not known contradicts nothing.
bool compatible(const AlignedUse& a, const AlignedUse& b);

constexpr int64_t kNoPartner = std::numeric_limits<int64_t>::min();

// For each of `uses` its place in `reference`: an index, one before its begin or beyond its end
// (calls that the reference's window does not have), or kNoPartner (contradicts the reference).
//
// The shift between both is the one where most calls can be the same and end at a constant
// distance, for ranks leave a collective together; among the best, the steadiest. With
// `same_clock`, a small difference counts too. Where one side lost a call in the middle, the shift
// changes there.
std::vector<int64_t> align_collectives(const std::vector<AlignedUse>& reference,
                                       const std::vector<AlignedUse>& uses,
                                       bool same_clock);

// Likewise for the receives of a one-way link, with its sends as reference. Sends may end long
// before their receive begins, so ends say nothing: the best shift has the fewest receives that end
// before their send began (where clocks are the same) or belong to another step, then is smallest.
std::vector<int64_t> align_receives(const std::vector<AlignedUse>& sends,
                                    const std::vector<AlignedUse>& receives,
                                    bool same_clock);

}  // namespace vitrine
