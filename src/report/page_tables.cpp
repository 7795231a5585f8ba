// Kernels, operators and gaps of all ranks in three tables.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "report/page_parts.h"

namespace vitrine {

namespace {

constexpr size_t kMostKernels = 1500, kMostOperators = 800, kMostGaps = 400;
constexpr size_t kMostRanksBeside = 32;  // beyond, kernels are not listed rank by rank

template <typename Row, typename Weight>
size_t keep_largest(std::vector<Row>& rows, size_t most, const Weight& weight) {
  const size_t all = rows.size();
  std::stable_sort(
      rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return weight(a) > weight(b); });
  if (rows.size() > most) rows.resize(most);
  return all;
}

struct Kernel {
  KernelRow sum;
  std::vector<int64_t> by_rank;  // total_ns, as JobFacts::ranks
};

Json kernels_json(const JobFacts& job, Json& totals) {
  std::unordered_map<std::string, size_t> places;
  std::vector<Kernel> kernels;
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    for (const KernelRow& row : job.ranks[r].kernels) {
      const auto [it, fresh] = places.try_emplace(row.name, kernels.size());
      if (fresh) {
        kernels.push_back({row, std::vector<int64_t>(job.ranks.size())});
      } else {
        KernelRow& sum = kernels[it->second].sum;
        sum.count += row.count, sum.total_ns += row.total_ns;
        sum.min_ns = std::min(sum.min_ns, row.min_ns);
        sum.max_ns = std::max(sum.max_ns, row.max_ns);
      }
      kernels[it->second].by_rank[r] += row.total_ns;
    }
  }
  totals["kernels"] =
      keep_largest(kernels, kMostKernels, [](const Kernel& kernel) { return kernel.sum.total_ns; });
  Json out = Json::array();
  for (const Kernel& kernel : kernels) {
    const KernelRow& row = kernel.sum;
    Json json = {{"name", row.name},
                 {"kind",
                  row.communication ? "communication"
                  : row.copy        ? "copy"
                                    : kernel_class_name(row.kind)},
                 {"tensor_core", row.tensor_core},
                 {"count", row.count},
                 {"total", row.total_ns},
                 {"min", row.min_ns},
                 {"max", row.max_ns}};
    if (job.ranks.size() > 1 && job.ranks.size() <= kMostRanksBeside) {
      json["by_rank"] = kernel.by_rank;
    }
    out.push_back(std::move(json));
  }
  return out;
}

Json operators_json(const JobFacts& job, Json& totals) {
  std::map<std::pair<std::string, std::string>, size_t> places;
  std::vector<OperatorRow> rows;
  for (const RankFacts& rank : job.ranks) {
    for (const OperatorRow& row : rank.operators) {
      const auto [it, fresh] = places.try_emplace({row.name, row.shapes}, rows.size());
      if (fresh) {
        rows.push_back(row);
        continue;
      }
      OperatorRow& sum = rows[it->second];
      sum.count += row.count, sum.host_ns += row.host_ns, sum.host_self_ns += row.host_self_ns;
      sum.device_ns += row.device_ns, sum.flops += row.flops, sum.bytes += row.bytes;
    }
  }
  totals["operators"] = keep_largest(rows, kMostOperators, [](const OperatorRow& row) {
    return std::pair(row.device_ns, row.host_self_ns);
  });
  Json out = Json::array();
  for (const OperatorRow& row : rows) {
    out.push_back({{"name", row.name},
                   {"shapes", row.shapes},
                   {"count", row.count},
                   {"host", row.host_ns},
                   {"self", row.host_self_ns},
                   {"device", row.device_ns},
                   {"flops", row.flops},
                   {"bytes", row.bytes}});
  }
  return out;
}

Json gaps_json(const JobFacts& job, const PageClock& clock, Json& totals) {
  std::vector<std::pair<int32_t, Gap>> gaps;
  for (const RankFacts& rank : job.ranks) {
    for (const Gap& gap : rank.gaps) gaps.emplace_back(rank.rank, gap);
  }
  totals["gaps"] =
      keep_largest(gaps, kMostGaps, [](const auto& row) { return row.second.duration_ns; });
  Json out = Json::array();
  for (const auto& [rank, gap] : gaps) {
    out.push_back({{"rank", rank},
                   {"begin", clock.at(rank, gap.begin_ns)},
                   {"duration", gap.duration_ns},
                   {"cause", idle_cause_name(gap.cause)},
                   {"what", gap.what},
                   {"step", gap.step}});
  }
  return out;
}

}  // namespace

Json tables_json(const JobFacts& job, const PageClock& clock) {
  Json totals = Json::object();
  Json kernels = kernels_json(job, totals);
  Json operators = operators_json(job, totals);
  Json gaps = gaps_json(job, clock, totals);
  return {{"kernels", std::move(kernels)},
          {"operators", std::move(operators)},
          {"gaps", std::move(gaps)},
          {"totals", std::move(totals)}};
}

}  // namespace vitrine
