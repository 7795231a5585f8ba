// Exposed transfer by what it is for, and the part of it that a slow link adds. Shared by the rules
// on communication, so that each nanosecond has one owner.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "analysis/rules/job_view.h"

namespace vitrine {

// Fills use_traffic and use_kind of all ranks.
void tell_traffic(JobView& view);

// Whether the recording has compute that communication could hide behind; cut pieces of a trace
// have none.
bool computes(const JobView& view);

// The judged step that launched it; of one launched before the recording or by an unmarked thread,
// the step in which it ran. -1: none.
int32_t step_of(const RankView& rank, const CollectiveUse& use);

// A collective of one rank with what is known of its exposed time.
struct ExposedUse {
  const CollectiveUse* use = nullptr;
  Traffic traffic = Traffic::kOther;
  const CollectiveKind* kind = nullptr;  // null: none
  int32_t step = -1;                     // by step_of
  int64_t exposed_ns = 0, wait_ns = 0;   // as RankView's
  bool matched = false;
  // Exposed and not known to be waiting.
  int64_t transfer_ns() const { return exposed_ns - wait_ns; }
};
// In judged steps (all where there are none), send and receive left out, in order of start.
std::vector<ExposedUse> exposed_uses(const RankView& rank);

// Share of a collective's transfer that would go at a usual speed of its link; 0 where the speed
// is usual, or is not known.
double slow_part(const ExposedUse& one);
// Below this part of what its link gives at that size a collective is slow.
extern const double kSlowBus;
bool is_large(const CollectiveKind& kind);

// A usual step's exposed transfer of the traffic, without the slow link's part; the median over the
// ranks, since all of them move the same data.
struct TrafficCost {
  int64_t transfer_ns = 0;   // of a usual step
  double hidden_share = 0;   // of the collectives' time without waiting, over all ranks
  double matched_share = 0;  // of transfer: other ranks' side was seen
  int64_t count = 0;         // of a usual step, of one rank
  int64_t wait_ns = 0;       // of a usual step: the exposed waiting beside it
};
TrafficCost cost_of(const JobView& view, Traffic traffic);

}  // namespace vitrine
