// The rules of diagnosis, one a file. Each adds its findings to `out`, nothing where its phenomenon
// is absent. docs/howto/add_rule.md says what a rule owes.
//
// Who owns a nanosecond, so that the same time is not charged twice:
//   - idle for data: input_starvation; the excess of one starving rank: straggler.
//   - idle for the host's launches or synchronisation: the part that all ranks have, to
//   launch_bound
//     and host_sync; what one rank has beyond and others wait for, to straggler or collective_wait.
//   - exposed waiting in collectives: straggler, else collective_wait; never the communication
//   rules.
//   - exposed transfer: the part that a slow link adds, to slow_collective; the rest to
//     exposed_gradient_sync (gradients), tensor_parallel_wide (tensor groups),
//     exposed_communication.
//   - everything between the stages of a pipeline, and what a stage's own host keeps its device
//   idle
//     for (launches, synchronisation, data, regions): pipeline_bubble; the rules on the host and on
//     input charge only what goes beyond that.
#pragma once

#include "analysis/finding.h"

namespace vitrine::rules {

void input_starvation(const JobView& view, RuleOutput& out);
void launch_bound(const JobView& view, RuleOutput& out);
void host_sync(const JobView& view, RuleOutput& out);
void host_region(const JobView& view, RuleOutput& out);
void stream_wait(const JobView& view, RuleOutput& out);
void unexplained_idle(const JobView& view, RuleOutput& out);
void dominant_kernels(const JobView& view, RuleOutput& out);
void no_tensor_cores(const JobView& view, RuleOutput& out);
void exposed_copies(const JobView& view, RuleOutput& out);
void exposed_gradient_sync(const JobView& view, RuleOutput& out);
void exposed_communication(const JobView& view, RuleOutput& out);
void slow_collective(const JobView& view, RuleOutput& out);
void islands(const JobView& view, RuleOutput& out);
void multi_node(const JobView& view, RuleOutput& out);
void tensor_parallel_wide(const JobView& view, RuleOutput& out);
void straggler(const JobView& view, RuleOutput& out);
void collective_wait(const JobView& view, RuleOutput& out);
void pipeline_bubble(const JobView& view, RuleOutput& out);
void outlier_step(const JobView& view, RuleOutput& out);
void throttled_card(const JobView& view, RuleOutput& out);
void memory_edge(const JobView& view, RuleOutput& out);
void memory_fragmentation(const JobView& view, RuleOutput& out);
void memory_imbalance(const JobView& view, RuleOutput& out);
void sharding_without_effect(const JobView& view, RuleOutput& out);
void recompute_unneeded(const JobView& view, RuleOutput& out);
void profiler_overhead(const JobView& view, RuleOutput& out);
void trace_artefacts(const JobView& view, RuleOutput& out);

}  // namespace vitrine::rules
