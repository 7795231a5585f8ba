// Zero-bubble schedules by search: orders under a limit of memory, for the very times of a job.
#pragma once

#include "plan/simulate.h"

namespace vitrine {

// ZB-1p and ZB-2p (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3.1): a greedy
// construction with weight gradients filled into gaps, tried with every combination of its three
// choices, and the hand-made ZB-H1 and ZB-H2 where they keep to the limit; the order whose
// longest stage, from its first work to its last, is shortest is returned. One chunk a stage,
// gradients of weights apart (ChunkTimes::weight).
//
// `limit`: micro-batches alive on a stage, from their forward to their weight gradient (`stages`
// and 2 x stages for the two schedules); after its backward one counts times.weight_held. Throws
// ConfigError for a limit below one micro-batch or several chunks.
PipelineOrders zero_bubble_search_orders(const PipelineTimes& times, int limit);

}  // namespace vitrine
