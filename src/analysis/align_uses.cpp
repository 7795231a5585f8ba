// Tries every shift between two orders of calls, then mends where one of them lost a call.
#include "analysis/align_uses.h"

#include <algorithm>
#include <cstdlib>

#include "analysis/collective_shape.h"
#include "analysis/statistics.h"

namespace vitrine {
namespace {

// Beyond this many calls a longer search is not worth its time: windows differ by a step or two.
constexpr int64_t kLongestShift = 128;
// Of windows of very different lengths, the longer one is searched no further than this beyond
// either of its ends: together with kCompared it bounds the work whatever the lengths.
constexpr int64_t kMostDifference = 4096;
// Of the calls that a shift brings together, at most so many are compared: those in the middle, for
// a sample at regular distances could miss what repeats every step.
constexpr int64_t kCompared = 400;
constexpr int64_t kSlack_ns = 200'000;

int64_t size_of(const std::vector<AlignedUse>& uses) { return static_cast<int64_t>(uses.size()); }

struct Overlap {
  int64_t begin, end;  // of `uses`
};
Overlap overlap(int64_t reference, int64_t uses, int64_t shift) {
  return {std::max<int64_t>(0, -shift), std::min(uses, reference - shift)};
}

// The calls that are compared.
Overlap middle(Overlap all) {
  const int64_t compared = std::min(kCompared, all.end - all.begin);
  const int64_t first = all.begin + (all.end - all.begin - compared) / 2;
  return {first, first + compared};
}

// Shifts that leave at least half of the shorter side with a partner, smallest first.
std::vector<int64_t> shifts(int64_t reference, int64_t uses) {
  const int64_t least = std::max<int64_t>(1, (std::min(reference, uses) + 1) / 2);
  std::vector<int64_t> result;
  const int64_t longest = kLongestShift + std::min(kMostDifference, std::abs(reference - uses));
  for (int64_t distance = 0; distance <= longest; ++distance) {
    for (const int64_t shift : {distance, -distance}) {
      const Overlap both = overlap(reference, uses, shift);
      if (both.end - both.begin >= least && (distance != 0 || result.empty())) {
        result.push_back(shift);
      }
    }
  }
  return result;
}

bool ends_together(const AlignedUse& a, const AlignedUse& b) {
  return collective_shape(a.name) != CollectiveShape::kRooted &&
         collective_shape(b.name) != CollectiveShape::kRooted;
}

struct Fit {
  int64_t shift = 0;
  int64_t agreeing = 0;  // pairs that can be one call and end at the same distance as most
  int64_t unsteadiness_ns = 0;
  int64_t difference_ns = 0;  // median of reference's end - use's end
};

Fit fit(const std::vector<AlignedUse>& reference,
        const std::vector<AlignedUse>& uses,
        int64_t shift,
        bool same_clock) {
  const Overlap both = middle(overlap(size_of(reference), size_of(uses), shift));
  std::vector<int64_t> differences;
  Fit result;
  result.shift = shift;
  for (int64_t i = both.begin; i < both.end; ++i) {
    const AlignedUse& a = reference[static_cast<size_t>(i + shift)];
    const AlignedUse& b = uses[static_cast<size_t>(i)];
    if (!compatible(a, b)) continue;
    if (ends_together(a, b)) {
      differences.push_back(a.end_ns - b.end_ns);
    } else {
      ++result.agreeing;
    }
  }
  result.difference_ns = median(differences);
  result.unsteadiness_ns = median_deviation(differences);
  for (const int64_t difference : differences) {
    if (std::abs(difference - result.difference_ns) <= kSlack_ns) ++result.agreeing;
  }
  // Calls at equal distances fit at any shift; a common clock then tells.
  if (same_clock) result.unsteadiness_ns += std::abs(result.difference_ns) / 16;
  return result;
}

Fit best_fit(const std::vector<AlignedUse>& reference,
             const std::vector<AlignedUse>& uses,
             bool same_clock) {
  std::vector<Fit> fits;
  int64_t most = 0;
  for (const int64_t shift : shifts(size_of(reference), size_of(uses))) {
    fits.push_back(fit(reference, uses, shift, same_clock));
    most = std::max(most, fits.back().agreeing);
  }
  // Shifts that cost a call or two at the edges are no worse for that.
  const int64_t enough = most - most / 10;
  Fit best;
  best.agreeing = -1;
  for (const Fit& next : fits) {
    if (next.agreeing < enough) continue;
    if (best.agreeing < 0 || next.unsteadiness_ns < best.unsteadiness_ns) best = next;
  }
  return best;
}

class Mender {
 public:
  Mender(const std::vector<AlignedUse>& reference, const std::vector<AlignedUse>& uses, Fit fit)
      : reference_(reference), uses_(uses), fit_(fit) {
    tolerance_ns_ = 8 * fit.unsteadiness_ns + kSlack_ns;
  }

  std::vector<int64_t> partners() const {
    std::vector<int64_t> result(uses_.size(), kNoPartner);
    int64_t shift = fit_.shift;
    for (int64_t i = 0; i < size_of(uses_); ++i) {
      if (!good(i, shift)) shift = better(i, shift);
      const int64_t at = i + shift;
      if (inside(at) &&
          !compatible(reference_[static_cast<size_t>(at)], uses_[static_cast<size_t>(i)])) {
        continue;
      }
      result[static_cast<size_t>(i)] = at;
    }
    return unique(std::move(result));
  }

 private:
  bool inside(int64_t at) const { return at >= 0 && at < size_of(reference_); }

  bool good(int64_t i, int64_t shift) const {
    const int64_t at = i + shift;
    if (!inside(at)) return true;
    const AlignedUse& a = reference_[static_cast<size_t>(at)];
    const AlignedUse& b = uses_[static_cast<size_t>(i)];
    if (!compatible(a, b)) return false;
    return !ends_together(a, b) ||
           std::abs(a.end_ns - b.end_ns - fit_.difference_ns) <= tolerance_ns_;
  }

  // The nearest shift at which the next few calls are in order; the old one where there is none.
  int64_t better(int64_t i, int64_t shift) const {
    for (int64_t distance = 1; distance <= 8; ++distance) {
      for (const int64_t candidate : {shift + distance, shift - distance}) {
        bool fits = inside(i + candidate);
        for (int64_t k = i; fits && k < std::min(i + 4, size_of(uses_)); ++k) {
          fits = good(k, candidate);
        }
        if (fits) return candidate;
      }
    }
    return shift;
  }

  // A change of shift may give one place to two calls: the later one keeps it.
  static std::vector<int64_t> unique(std::vector<int64_t> places) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t i = places.size(); i-- > 0;) {
      if (places[i] == kNoPartner) continue;
      if (places[i] >= least) {
        places[i] = kNoPartner;
      } else {
        least = places[i];
      }
    }
    return places;
  }

  const std::vector<AlignedUse>& reference_;
  const std::vector<AlignedUse>& uses_;
  Fit fit_;
  int64_t tolerance_ns_;
};

}  // namespace

bool compatible(const AlignedUse& a, const AlignedUse& b) {
  const bool names = a.name.empty() || b.name.empty() || a.name == b.name;
  return names && (a.bytes == 0 || b.bytes == 0 || a.bytes == b.bytes);
}

std::vector<int64_t> align_collectives(const std::vector<AlignedUse>& reference,
                                       const std::vector<AlignedUse>& uses,
                                       bool same_clock) {
  if (uses.empty() || reference.empty()) return std::vector<int64_t>(uses.size(), kNoPartner);
  return Mender(reference, uses, best_fit(reference, uses, same_clock)).partners();
}

std::vector<int64_t> align_receives(const std::vector<AlignedUse>& sends,
                                    const std::vector<AlignedUse>& receives,
                                    bool same_clock) {
  std::vector<int64_t> result(receives.size(), kNoPartner);
  if (sends.empty() || receives.empty()) return result;
  int64_t best = 0;
  double best_wrong = 2;
  for (const int64_t shift : shifts(size_of(sends), size_of(receives))) {
    const Overlap both = middle(overlap(size_of(sends), size_of(receives), shift));
    int64_t wrong = 0;
    for (int64_t i = both.begin; i < both.end; ++i) {
      const AlignedUse& send = sends[static_cast<size_t>(i + shift)];
      const AlignedUse& receive = receives[static_cast<size_t>(i)];
      const bool too_early = same_clock && receive.end_ns + kSlack_ns < send.start_ns;
      const bool other_step = send.step >= 0 && receive.step >= 0 && send.step != receive.step;
      const bool other_size = send.bytes != 0 && receive.bytes != 0 && send.bytes != receive.bytes;
      if (too_early || other_step || other_size) ++wrong;
    }
    const double share = static_cast<double>(wrong) / static_cast<double>(both.end - both.begin);
    if (share < best_wrong) {
      best_wrong = share;
      best = shift;
    }
  }
  for (size_t i = 0; i < receives.size(); ++i) result[i] = static_cast<int64_t>(i) + best;
  return result;
}

}  // namespace vitrine
