// A job as the rules look at it: what a usual step of each rank is made of, and helpers to say it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/finding.h"
#include "analysis/statistics.h"

namespace vitrine {

// What a collective is for: by the group's role, its name and the phase it was launched in.
enum class Traffic : uint8_t { kGradients, kTensorParallel, kGather, kOther };

// Nanoseconds of a usual step: medians over the steps, so that one odd step does not speak for all.
// Without step marks: of the whole window.
struct RankView {
  size_t index = 0;  // into JobFacts::ranks
  int32_t rank = -1;
  const RankFacts* facts = nullptr;
  std::vector<const StepFacts*> steps;  // those that are judged
  int64_t step_ns = 0;
  int64_t compute_ns = 0, communication_ns = 0, overlap_ns = 0;
  int64_t exposed_communication_ns = 0, exposed_copy_ns = 0, idle_ns = 0;
  IdleByCause idle{};
  int64_t data_host_ns = 0;  // the host in data loading, hidden or not
  // In collectives among ranks of equal work (not send and receive), not hidden behind compute:
  int64_t wait_ns = 0;       // for another rank
  int64_t transfer_ns = 0;   // moving data
  int64_t unmatched_ns = 0;  // other ranks' side not seen: either of the two
  // By index of RankFacts::collectives. Two that are exposed at once share the time, so that all of
  // a step add up to its exposed communication. Waiting: -1 = other ranks' side not seen.
  std::vector<int64_t> use_exposed_ns, use_wait_ns;
  // By index of RankFacts::collectives.
  std::vector<Traffic> use_traffic;
  std::vector<const CollectiveKind*> use_kind;  // into JobFacts; null: none
  // Idle time for the rank's own host that pipeline_bubble charges, by cause.
  IdleByCause of_pipeline{};

  int64_t idle_for(IdleCause cause) const { return idle[static_cast<size_t>(cause)]; }
  // What is left for the rules on the host beside pipeline_bubble.
  int64_t idle_beside_pipeline(IdleCause cause) const {
    const auto at = static_cast<size_t>(cause);
    return idle[at] > of_pipeline[at] ? idle[at] - of_pipeline[at] : 0;
  }
  int64_t starved_ns() const { return idle_for(IdleCause::kDataLoading); }
};

struct JobView {
  const JobFacts* job = nullptr;
  std::vector<RankView> ranks;  // those with device work
  int64_t step_ns = 0;          // of the rank with the longest usual step
  bool has_steps = false;
  bool trains = false;  // backward or the optimizer was seen: advice on training makes sense

  // "a step" or "over the whole trace": what the figures are per.
  const char* per() const { return has_steps ? "a step" : "over the whole trace"; }
  double share(int64_t ns) const;  // of the step, or of the window without steps
  const RankView* of_rank(int32_t rank) const;
};
// `whole`: step marks are set aside, all figures are of the window.
JobView view_job(const JobFacts& job, bool whole = false);

// What (nearly) every rank has of a quantity, so that one rank's excess is not taken for the job's:
// the least; from four ranks on the lower quartile.
int64_t common_part(const JobView& view, const std::function<int64_t(const RankView&)>& value);
// Over the judged steps of a rank; its value over the whole window where there are none.
int64_t usual(const RankView& rank,
              const std::function<int64_t(const StepFacts&)>& of_step,
              int64_t of_window);

// "send", "receive" and groups of them.
bool is_point_to_point(const std::string& collective);
// Role of a process group in the inferred layout: "data", "tensor", ...; "unknown".
std::string group_role(const JobFacts& job, const std::string& group_name);

// The longest gaps of that cause, as places to jump to: at most `most` a rank.
void add_gaps(const JobView& view, IdleCause cause, size_t most, std::vector<Evidence>& out);
// What the host did in idle time of that cause, most first: (what, ns over the rank's window).
std::vector<std::pair<std::string, int64_t>> idle_whats(const RankFacts& rank, IdleCause cause);

// A kernel's name without its arguments and, where still long, template arguments: never cut inside
// a word.
std::string short_kernel_name(const std::string& name);
// "all_reduce of 25.0 MiB"; without the size where it is not known.
std::string sized_name(const CollectiveUse& use);

// "12.0 ms (23.4 %)".
std::string time_and_share(int64_t ns, double share);
std::string percent(double share);                         // "23.4 %"
std::string rank_list(const std::vector<int32_t>& ranks);  // "rank 3", "ranks 0-3, 7", "all ranks"

// Cost and share are set together, always of the view's step.
void set_cost(Finding& finding, const JobView& view, int64_t ns);

}  // namespace vitrine
