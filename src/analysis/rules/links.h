// What the NCCL logs and the topologies say of the links between ranks. Shared by the rules on
// links.
#pragma once

#include <string>
#include <vector>

#include "analysis/rules/job_view.h"

namespace vitrine {

struct LinkEvidence {
  bool nvlink = false;           // some pair of cards of a topology has NVLink
  bool infiniband_card = false;  // a topology or a log names an mlx or IB device
  int64_t p2p = 0, shared_memory = 0, network_ib = 0, network_socket = 0, network_other = 0;
  int64_t ib_without_rdma = 0;                     // channels by NET/IB without GDRDMA
  int32_t hosts = 1;                               // that the job spans, as far as known
  std::map<std::string, std::string> environment;  // NCCL_... of all logs
  std::string network;
};
LinkEvidence link_evidence(const JobFacts& job);

// The card that a rank uses within its host, as the topology numbers them: the physical number in a
// NCCL log, else the CUDA number there (the same unless CUDA_VISIBLE_DEVICES hides cards), else
// the rank modulo the cards of the one topology; -1 = not known.
int32_t card_of(const JobFacts& job, int32_t rank);
// Host of a rank; "" = not known.
std::string host_of(const JobFacts& job, int32_t rank);
// Whether the ranks are on more than one host, as far as known.
bool spans_hosts(const JobFacts& job, const std::vector<int32_t>& ranks);
// Islands of NVLink that the cards of `ranks` (of one host) lie in; 0 = not known.
size_t islands_of(const JobFacts& job, const std::vector<int32_t>& ranks);

}  // namespace vitrine
