// The cards at the head of the page: a few numbers, each with what it means.
#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/statistics.h"
#include "core/format.h"
#include "report/page_parts.h"

namespace vitrine {

namespace {

constexpr double kBadCommunication = 0.30, kGoodCommunication = 0.10;
constexpr double kBadDataWait = 0.05, kBadIdle = 0.20, kGoodIdle = 0.05;
constexpr double kMemoryNearEdge = 0.90;

Json card(const char* label,
          const std::string& value,
          const std::string& unit,
          const std::string& note,
          const char* tone = "") {
  return {{"label", label}, {"value", value}, {"unit", unit}, {"note", note}, {"tone", tone}};
}

double last_finite(const std::vector<double>& values) {
  for (size_t i = values.size(); i-- > 0;) {
    if (std::isfinite(values[i])) return values[i];
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// NaN where no step has the value.
double finite_median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values.empty() ? std::numeric_limits<double>::quiet_NaN() : median(std::move(values));
}

// "12.3", "k": a count with its thousands as the unit's prefix.
std::pair<std::string, std::string> split_unit(const std::string& text) {
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return {text, ""};
  return {text.substr(0, blank), text.substr(blank + 1)};
}

void metrics_cards(const MetricsTable& metrics, Json& cards) {
  if (const auto* loss = metrics.find("loss"); loss != nullptr && !metrics.steps.empty()) {
    const double value = last_finite(*loss);
    cards.push_back(card("Final loss",
                         std::isfinite(value) ? format("%.4g", value) : "NaN",
                         "",
                         format("step %lld", static_cast<long long>(metrics.steps.back())),
                         std::isfinite(loss->back()) ? "" : "bad"));
  }
  for (const auto& [name, values] : metrics.columns) {
    const size_t at = name.find("_per_second");
    if (at == std::string::npos || !std::isfinite(finite_median(values))) continue;
    const auto [value, prefix] = split_unit(format_count(finite_median(values)));
    const std::string unit = name.substr(0, at) + "/s";
    cards.push_back(card("Throughput",
                         value,
                         prefix.empty() ? unit : prefix + " " + unit,
                         "median of all steps, all ranks"));
    break;
  }
}

struct Sum {
  Breakdown parts;  // idle_ns without the waits for data
  int64_t data_wait_ns = 0;
  std::vector<double> steps;
  double share(int64_t part) const { return double(part) / double(parts.span_ns); }
};

Sum sum_of(const JobFacts& job) {
  Sum sum;
  for (const RankFacts& rank : job.ranks) {
    sum.parts.span_ns += rank.total.span_ns;
    sum.parts.compute_ns += rank.total.compute_ns;
    sum.parts.exposed_communication_ns += rank.total.exposed_communication_ns;
    sum.parts.communication_ns += rank.total.communication_ns;
    sum.parts.overlap_ns += rank.total.overlap_ns;
    const int64_t data = rank.idle_by_cause[static_cast<size_t>(IdleCause::kDataLoading)];
    sum.data_wait_ns += data;
    sum.parts.idle_ns += rank.total.idle_ns - data;
    for (const auto& step : rank.steps) sum.steps.push_back(double(step.duration_ns));
  }
  return sum;
}

Json communication_card(const Sum& sum) {
  const double exposed = sum.share(sum.parts.exposed_communication_ns);
  if (sum.parts.communication_ns == 0) {
    return card("Exposed communication", "0", "%", "no communication recorded");
  }
  const double hidden = double(sum.parts.overlap_ns) / double(sum.parts.communication_ns);
  const char* tone = exposed > kBadCommunication     ? "bad"
                     : exposed <= kGoodCommunication ? "good"
                                                     : "warn";
  return card("Exposed communication",
              format("%.1f", 100 * exposed),
              "%",
              format("of the time; %.0f %% of communication is hidden", 100 * hidden),
              tone);
}

void time_cards(const JobFacts& job, Json& cards) {
  const Sum sum = sum_of(job);
  if (!sum.steps.empty()) {
    const auto [value, unit] = split_unit(format_ns(median(sum.steps)));
    cards.push_back(card("Step time",
                         value,
                         unit,
                         format("median of %zu recorded steps%s",
                                sum.steps.size(),
                                job.ranks.size() > 1 ? " of all ranks" : "")));
  }
  if (sum.parts.span_ns == 0) return;
  cards.push_back(card("Compute",
                       format("%.1f", 100 * sum.share(sum.parts.compute_ns)),
                       "%",
                       "of the time a kernel computes"));
  cards.push_back(communication_card(sum));
  if (const double waiting = sum.share(sum.data_wait_ns); waiting > kBadDataWait) {
    cards.push_back(card("Waiting for data",
                         format("%.1f", 100 * waiting),
                         "%",
                         "the data loader does not keep up",
                         "bad"));
  }
  const double idle = sum.share(sum.parts.idle_ns);
  cards.push_back(card("Idle",
                       format("%.1f", 100 * idle),
                       "%",
                       "of the time nothing runs on the device",
                       idle > kBadIdle     ? "bad"
                       : idle <= kGoodIdle ? "good"
                                           : "warn"));
}

void memory_card(const ReportInput& input, Json& cards) {
  const MemoryPeak peak = memory_peak(input);
  if (peak.bytes == 0) return;
  const auto [value, unit] = split_unit(format_bytes(double(peak.bytes)));
  std::string note = peak.rank >= 0 ? format("rank %d", peak.rank) : std::string("one rank");
  bool near_edge = false;
  if (peak.capacity > 0) {
    const double used = double(peak.bytes) / double(peak.capacity);
    near_edge = used > kMemoryNearEdge;
    note += format(", %.0f %% of ", 100 * used) + format_bytes(double(peak.capacity));
  }
  cards.push_back(card("Peak memory", value, unit, note, near_edge ? "bad" : ""));
}

}  // namespace

Json cards_json(const ReportInput& input) {
  Json cards = Json::array();
  metrics_cards(input.metrics, cards);
  if (input.job != nullptr) time_cards(*input.job, cards);
  memory_card(input, cards);
  return cards;
}

}  // namespace vitrine
