// Islands and cliques of NVLink.
#include "timeline/interconnect.h"

#include <utility>

namespace vitrine {

const char* link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kUnknown:
      return "unknown";
    case LinkKind::kSystem:
      return "SYS";
    case LinkKind::kNode:
      return "NODE";
    case LinkKind::kHostBridge:
      return "PHB";
    case LinkKind::kSwitches:
      return "PXB";
    case LinkKind::kSwitch:
      return "PIX";
    case LinkKind::kNvlink:
      return "NVLink";
    case LinkKind::kSelf:
      return "self";
  }
  return "unknown";
}

std::vector<std::vector<int32_t>> Topology::nvlink_islands() const {
  std::vector<std::vector<int32_t>> islands;
  std::vector<char> seen(gpus.size(), 0);
  for (size_t first = 0; first < gpus.size(); ++first) {
    if (seen[first]) continue;
    std::vector<char> member(gpus.size(), 0);
    std::vector<size_t> open = {first};
    seen[first] = member[first] = 1;
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      for (size_t to = 0; to < gpus.size(); ++to) {
        if (seen[to] || links[at][to].kind != LinkKind::kNvlink) continue;
        seen[to] = member[to] = 1;
        open.push_back(to);
      }
    }
    std::vector<int32_t> island;
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (member[i]) island.push_back(static_cast<int32_t>(i));
    }
    islands.push_back(std::move(island));
  }
  return islands;
}

bool Topology::nvlink_clique(const std::vector<int32_t>& members) const {
  for (const int32_t a : members) {
    for (const int32_t b : members) {
      if (a < 0 || b < 0 || static_cast<size_t>(a) >= gpus.size() ||
          static_cast<size_t>(b) >= gpus.size()) {
        return false;
      }
      if (a == b) continue;
      if (links[static_cast<size_t>(a)][static_cast<size_t>(b)].kind != LinkKind::kNvlink) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace vitrine
