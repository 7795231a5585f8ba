// Equal texts of several ranks become one.
#include "report/job_warnings.h"

#include <algorithm>

#include "core/format.h"

namespace vitrine {

std::vector<std::string> job_warnings(const JobFacts& job) {
  std::vector<std::string> out;
  std::vector<std::pair<std::string, std::vector<std::string>>> texts;
  for (const RankFacts& rank : job.ranks) {
    for (const auto& text : rank.warnings) {
      auto it = std::find_if(
          texts.begin(), texts.end(), [&](const auto& known) { return known.first == text; });
      if (it == texts.end()) it = texts.insert(texts.end(), {text, {}});
      it->second.push_back(std::to_string(rank.rank));
    }
  }
  for (const auto& [text, ranks] : texts) {
    if (ranks.size() == job.ranks.size() && ranks.size() > 1) {
      out.push_back("every rank: " + text);
    } else {
      out.push_back((ranks.size() == 1 ? "rank " : "ranks ") + join(ranks, ", ") + ": " + text);
    }
  }
  out.insert(out.end(), job.warnings.begin(), job.warnings.end());
  for (const auto& topology : job.topologies) {
    for (const auto& text : topology.warnings) out.push_back(topology.source + ": " + text);
  }
  for (const auto& nccl : job.nccl) {
    for (const auto& text : nccl.warnings) out.push_back(nccl.source + ": " + text);
  }
  return out;
}

}  // namespace vitrine
