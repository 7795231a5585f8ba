// Rule: collectives that reach a small part of what the link between the cards can do.
#include <algorithm>

#include "analysis/rules/gain.h"
#include "analysis/rules/links.h"
#include "analysis/rules/rules.h"
#include "analysis/rules/traffic.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// Exposed transfer of a usual step that a usual link speed would save: the median over the ranks.
int64_t slow_cost(const JobView& view) {
  std::vector<int64_t> costs;
  for (const RankView& rank : view.ranks) {
    std::map<int32_t, double> by_step;
    double whole = 0;
    for (const ExposedUse& one : exposed_uses(rank)) {
      const double lost = static_cast<double>(one.transfer_ns()) * slow_part(one);
      by_step[one.step] += lost;
      whole += lost;
    }
    costs.push_back(usual(
        rank,
        [&](const StepFacts& s) { return static_cast<int64_t>(by_step[s.step]); },
        static_cast<int64_t>(whole)));
  }
  return median(costs);
}

bool is_set(const LinkEvidence& links, const char* name) {
  const auto found = links.environment.find(name);
  return found != links.environment.end() && found->second != "0" && !found->second.empty();
}

// The transport's fault as the log tells it; false where the log tells none.
bool explain(const LinkEvidence& links, Finding& finding) {
  if (is_set(links, "NCCL_P2P_DISABLE")) {
    finding.cause =
        "NCCL_P2P_DISABLE is set: data between cards of one host go through host memory.";
    finding.fix = {"unset NCCL_P2P_DISABLE (shell, launcher, container image, nccl.conf)"};
    return true;
  }
  if (links.shared_memory > links.p2p && links.nvlink) {
    finding.cause = format(
        "The NCCL log shows %lld of %lld channels within hosts by SHM (host memory), "
        "although the topology has NVLink: peer-to-peer is off or not permitted.",
        static_cast<long long>(links.shared_memory),
        static_cast<long long>(links.shared_memory + links.p2p));
    finding.fix = {
        "look for NCCL_P2P_DISABLE, NCCL_P2P_LEVEL=LOC and containers without --ipc=host",
        "IOMMU and PCIe ACS off on bare metal; nvidia-smi topo -p2p r shows what is "
        "permitted"};
    return true;
  }
  if (links.shared_memory > links.p2p) {
    finding.cause =
        "The NCCL log shows SHM transport (through host memory) between cards of one host "
        "instead of peer-to-peer.";
    finding.fix = {"look for NCCL_P2P_DISABLE and NCCL_P2P_LEVEL in the environment"};
    return true;
  }
  if (links.network_socket > links.network_ib && links.hosts > 1) {
    finding.cause = "The NCCL log shows TCP sockets between hosts.";
    finding.fix = {"unset NCCL_IB_DISABLE; NCCL_IB_HCA and NCCL_SOCKET_IFNAME name the fast cards"};
    return true;
  }
  return false;
}

}  // namespace

void slow_collective(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  const LinkEvidence links = link_evidence(job);
  std::vector<const CollectiveKind*> slow;
  bool judged = false, large = false;
  for (const CollectiveKind& kind : job.collective_kinds) {
    if (is_point_to_point(kind.name) || kind.bus_bytes_per_s <= 0) continue;
    large = large || is_large(kind);
    if (!is_large(kind) || kind.expected_bytes_per_s <= 0) continue;
    judged = true;
    if (kind.bus_bytes_per_s < kSlowBus * kind.expected_bytes_per_s) slow.push_back(&kind);
  }
  if (large && !judged) {
    out.abstained.push_back("slow_collective: what the link of these cards can do is not known");
  }
  Finding finding;
  const bool told = explain(links, finding);
  const bool by_log = told && links.environment.count("NCCL_P2P_DISABLE") + links.nvlink > 0;
  if (slow.empty() && !(by_log && !judged)) return;

  finding.rule = "slow_collective";
  finding.title = "Collectives slow for their link";
  finding.confidence = told && !slow.empty() ? 0.95 : told ? 0.8 : 0.7;
  set_cost(finding, view, slow.empty() ? 0 : slow_cost(view));
  if (!slow.empty() && finding.cost_ns <= 0) finding.severity = Severity::kNote;  // hidden
  for (const CollectiveKind* kind : slow) {
    finding.evidence.push_back({format(
        "%s of group '%s', %lld times, up to %s: bus bandwidth %.1f GB/s, %s of the %.0f GB/s "
        "of %s",
        kind->name.c_str(),
        kind->group.c_str(),
        static_cast<long long>(kind->count),
        format_bytes(static_cast<double>(kind->bytes)).c_str(),
        kind->bus_bytes_per_s / 1e9,
        percent(kind->bus_bytes_per_s / kind->expected_bytes_per_s).c_str(),
        kind->expected_bytes_per_s / 1e9,
        kind->expected_from.c_str())});
  }
  if (!slow.empty()) {
    finding.summary = format(
        "Slow link: %s moves %.1f GB/s over the bus where %s offers %.0f; the step "
        "is held up for %s %s by it.",
        slow.front()->name.c_str(),
        slow.front()->bus_bytes_per_s / 1e9,
        slow.front()->expected_from.c_str(),
        slow.front()->expected_bytes_per_s / 1e9,
        time_and_share(finding.cost_ns, finding.share).c_str(),
        view.per());
  } else {
    finding.summary =
        "The NCCL log shows a slow transport where the machine has a better one; no trace "
        "says what it costs.";
  }
  for (const auto& [name, value] : links.environment) {
    if (name.starts_with("NCCL_P2P") || name.starts_with("NCCL_SHM") ||
        name.starts_with("NCCL_IB") || name == "NCCL_ALGO" || name == "NCCL_PROTO" ||
        name == "NCCL_NET") {
      finding.evidence.push_back({"NCCL log: " + name + "=" + value + " set by the environment"});
    }
  }
  if (links.p2p + links.shared_memory + links.network_ib + links.network_socket > 0) {
    finding.evidence.push_back(
        {format("NCCL log: channels by P2P %lld, SHM %lld, NET/IB %lld, "
                "NET/Socket %lld",
                static_cast<long long>(links.p2p),
                static_cast<long long>(links.shared_memory),
                static_cast<long long>(links.network_ib),
                static_cast<long long>(links.network_socket))});
  }
  if (!told) {
    finding.cause =
        "The data do not travel by the best link of these cards: peer-to-peer off, host "
        "memory (SHM) or sockets instead, or another job on the same link.";
    finding.fix = {
        "check that NCCL_P2P_DISABLE, NCCL_IB_DISABLE and NCCL_SHM_DISABLE are not set, and that "
        "NCCL_ALGO and NCCL_PROTO are left to NCCL",
        "`nvidia-smi topo -m` and all_reduce_perf of nccl-tests show what the link can do"};
    if (job.nccl.empty()) {
      finding.fix.insert(
          finding.fix.begin(),
          "run once with NCCL_DEBUG=INFO and give the log too: it names the transport "
          "(P2P, SHM, NET)");
    }
  } else {
    finding.fix.push_back("prove it with all_reduce_perf of nccl-tests before and after");
  }
  finding.gain = finding.cost_ns > 0
                     ? "about " + time_and_share(finding.cost_ns, finding.share) + " " +
                           view.per() + predicted(view, Change::kFasterCommunication)
                     : "";
  out.findings.push_back(std::move(finding));
}

}  // namespace vitrine::rules
