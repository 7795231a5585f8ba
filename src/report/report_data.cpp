// Cards, curves, breakdown, memory and spans as JSON.
#include "report/report_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/breakdown.h"
#include "core/error.h"
#include "core/format.h"
#include "report/image.h"

namespace vitrine {

namespace {

constexpr double kBadCommunication = 0.30, kGoodCommunication = 0.10;
constexpr double kBadDataWait = 0.05;
constexpr double kMemoryNearEdge = 0.90;
constexpr size_t kMostSamples = 1500;  // of memory, a rank

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

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// "12.3", "k": a count with its thousands as the unit's prefix.
std::pair<std::string, std::string> split_unit(const std::string& text) {
  const size_t blank = text.find(' ');
  if (blank == std::string::npos) return {text, ""};
  return {text.substr(0, blank), text.substr(blank + 1)};
}

// Time and place of everything on the page: nanoseconds since the first span of any rank.
struct Clock {
  int64_t first = 0, last = 0;  // wall time where every rank has an anchor, else monotonic
  bool anchored = true;

  explicit Clock(const Timeline& timeline) {
    for (const auto& rank : timeline.ranks) anchored = anchored && rank.wall_anchor_ns != 0;
    first = std::numeric_limits<int64_t>::max();
    last = std::numeric_limits<int64_t>::min();
    for (const auto& rank : timeline.ranks) {
      for (size_t i = 0; i < rank.spans.size(); ++i) {
        const int64_t start = rank.spans.start_ns[i] + shift(rank);
        first = std::min(first, start);
        last = std::max(last, start + rank.spans.duration_ns[i]);
      }
    }
    if (first > last) first = last = 0;
  }
  int64_t shift(const RankTimeline& rank) const { return anchored ? rank.wall_anchor_ns : 0; }
  int64_t at(const RankTimeline& rank, int64_t ns) const { return ns + shift(rank) - first; }
};

Json parts_json(const Breakdown& parts) {
  return {{"span", parts.span_ns},
          {"compute", parts.compute_ns},
          {"exposed_communication", parts.exposed_communication_ns},
          {"exposed_copy", parts.exposed_copy_ns},
          {"data_wait", parts.data_wait_ns},
          {"idle", parts.idle_ns},
          {"communication", parts.communication_ns},
          {"overlap", parts.overlap_ns}};
}

Json breakdown_json(const std::vector<RankBreakdown>& ranks) {
  Json out = Json::array();
  for (const auto& rank : ranks) {
    Json steps = Json::array();
    for (const auto& step : rank.steps) {
      Json json = parts_json(step.time);
      json["step"] = step.step;
      steps.push_back(std::move(json));
    }
    out.push_back(
        {{"rank", rank.rank}, {"whole", parts_json(rank.whole)}, {"steps", std::move(steps)}});
  }
  return out;
}

Json metrics_json(const MetricsTable& table) {
  Json columns = Json::array();
  for (const auto& [name, values] : table.columns) {
    columns.push_back({{"name", name}, {"values", values}});  // NaN is dumped as null
  }
  return {{"steps", table.steps}, {"columns", std::move(columns)}};
}

int64_t total(const MemoryByCategory& bytes) {
  int64_t sum = 0;
  for (const int64_t part : bytes) sum += part;
  return sum;
}

// At most kMostSamples, each the largest of its stretch, so that no peak is lost.
std::vector<MemorySample> thinned(const std::vector<MemorySample>& samples) {
  if (samples.size() <= kMostSamples) return samples;
  std::vector<MemorySample> out;
  for (size_t part = 0; part < kMostSamples; ++part) {
    const auto begin =
        samples.begin() + static_cast<ptrdiff_t>(part * samples.size() / kMostSamples);
    const auto end =
        samples.begin() + static_cast<ptrdiff_t>((part + 1) * samples.size() / kMostSamples);
    out.push_back(*std::max_element(
        begin, end, [](const auto& a, const auto& b) { return total(a.bytes) < total(b.bytes); }));
  }
  return out;
}

// The ledgers' peaks where given, else those of the samples.
std::vector<RankMemory> memory_peaks(const ReportInput& input) {
  if (!input.memory.empty() || input.timeline == nullptr) return input.memory;
  std::vector<RankMemory> out;
  for (const auto& rank : input.timeline->ranks) {
    RankMemory memory;
    memory.rank = rank.rank;
    for (const auto& sample : rank.memory) {
      if (total(sample.bytes) <= memory.peak_bytes) continue;
      memory.peak_bytes = total(sample.bytes);
      memory.at_peak = sample.bytes;
    }
    if (memory.peak_bytes > 0) out.push_back(memory);
  }
  return out;
}

Json memory_json(const ReportInput& input, const std::vector<RankMemory>& peaks) {
  Json categories = Json::array();
  for (int c = 0; c < kMemoryCategories; ++c) {
    categories.push_back(memory_category_name(static_cast<MemoryCategory>(c)));
  }
  Json ranks = Json::array();
  for (const auto& peak : peaks) {
    Json times = Json::array(), bytes = Json::array(), holders = Json::array();
    for (const auto& rank : input.timeline ? input.timeline->ranks : std::vector<RankTimeline>()) {
      if (rank.rank != peak.rank) continue;
      for (const auto& sample : thinned(rank.memory)) {
        times.push_back(sample.time_ns - rank.memory.front().time_ns);
        bytes.push_back(sample.bytes);
      }
    }
    for (const auto& holder : peak.holders) {
      holders.push_back({{"category", memory_category_name(holder.category)},
                         {"holder", holder.name},
                         {"bytes", holder.bytes}});
    }
    ranks.push_back({{"rank", peak.rank},
                     {"times", std::move(times)},
                     {"bytes", std::move(bytes)},
                     {"peak", peak.peak_bytes},
                     {"at_peak", peak.at_peak},
                     {"holders", std::move(holders)}});
  }
  return {{"categories", std::move(categories)},
          {"capacity", input.memory_capacity_bytes},
          {"ranks", std::move(ranks)}};
}

Json collective_json(const RankTimeline& rank, const Collective& collective) {
  return {{"name", rank.strings[collective.name]},
          {"group", rank.strings[collective.group]},
          {"ranks", collective.ranks},
          {"sequence", collective.sequence},
          {"in", collective.in_elements},
          {"out", collective.out_elements},
          {"sent", collective.sent_bytes},
          {"dtype", rank.strings[collective.dtype]},
          {"peer", collective.peer}};
}

Json rank_timeline_json(const RankTimeline& rank, const Clock& clock, size_t count) {
  const Spans& spans = rank.spans;
  count = std::min(count, spans.size());
  Json start = Json::array(), kind = Json::array(), depth = Json::array(), steps = Json::array();
  std::vector<std::vector<int64_t>> open(
      rank.lanes.size());  // ends of the spans around the next one
  for (size_t i = 0; i < count; ++i) {
    const int64_t begin = spans.start_ns[i];
    start.push_back(clock.at(rank, begin));
    kind.push_back(static_cast<int>(spans.kind[i]));
    auto& stack = open[static_cast<size_t>(spans.lane[i])];
    while (!stack.empty() && stack.back() <= begin) stack.pop_back();
    depth.push_back(stack.size());
    stack.push_back(begin + spans.duration_ns[i]);
    if (spans.kind[i] == SpanKind::kStep) {
      steps.push_back({{"step", spans.step[i]},
                       {"start", clock.at(rank, begin)},
                       {"dur", spans.duration_ns[i]}});
    }
  }
  const auto head = [count](const auto& column) {
    return Json(std::vector(column.begin(), column.begin() + static_cast<ptrdiff_t>(count)));
  };
  Json lanes = Json::array(), strings = Json::array(), collectives = Json::array();
  for (const auto& lane : rank.lanes)
    lanes.push_back({{"name", lane.name}, {"device", lane.device}});
  for (size_t i = 0; i < rank.strings.size(); ++i) {
    strings.push_back(rank.strings[static_cast<StringId>(i)]);
  }
  for (const auto& collective : rank.collectives) {
    collectives.push_back(collective_json(rank, collective));
  }
  return {{"rank", rank.rank},
          {"lanes", std::move(lanes)},
          {"strings", std::move(strings)},
          {"steps", std::move(steps)},
          {"collectives", std::move(collectives)},
          {"spans",
           {{"start", std::move(start)},
            {"dur", head(spans.duration_ns)},
            {"name", head(spans.name)},
            {"kind", std::move(kind)},
            {"lane", head(spans.lane)},
            {"step", head(spans.step)},
            {"micro", head(spans.micro_batch)},
            {"block", head(spans.block)},
            {"collective", head(spans.collective)},
            {"depth", std::move(depth)}}}};
}

Json timeline_json(const ReportInput& input, Json& warnings) {
  Json kinds = Json::array(), ranks = Json::array();
  for (int kind = 0; kind <= static_cast<int>(SpanKind::kStep); ++kind) {
    kinds.push_back(span_kind_name(static_cast<SpanKind>(kind)));
  }
  int64_t end = 1;
  if (input.timeline != nullptr) {
    const Clock clock(*input.timeline);
    end = std::max<int64_t>(1, clock.last - clock.first);
    size_t spans = 0;
    for (const auto& rank : input.timeline->ranks) spans += rank.spans.size();
    // The same share of every rank, so that all end at about the same moment.
    const double share = spans <= input.max_spans ? 1.0 : double(input.max_spans) / double(spans);
    if (share < 1) {
      warnings.push_back(
          format("The timeline holds %zu spans; the page shows the first %.0f %% of each rank. "
                 "The trace files hold all of them.",
                 spans,
                 100 * share));
    }
    for (const auto& rank : input.timeline->ranks) {
      const auto count = static_cast<size_t>(std::floor(double(rank.spans.size()) * share));
      ranks.push_back(rank_timeline_json(rank, clock, share < 1 ? count : rank.spans.size()));
    }
  }
  return {{"kinds", std::move(kinds)}, {"end", end}, {"ranks", std::move(ranks)}};
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
    if (at == std::string::npos || !std::isfinite(median(values))) continue;
    const auto [value, prefix] = split_unit(format_count(median(values)));
    const std::string unit = name.substr(0, at) + "/s";
    cards.push_back(card("Throughput",
                         value,
                         prefix.empty() ? unit : prefix + " " + unit,
                         "median of all steps, all ranks"));
    break;
  }
}

void time_cards(const std::vector<RankBreakdown>& ranks, Json& cards) {
  Breakdown sum;
  std::vector<double> steps;
  for (const auto& rank : ranks) {
    sum.span_ns += rank.whole.span_ns;
    sum.exposed_communication_ns += rank.whole.exposed_communication_ns;
    sum.communication_ns += rank.whole.communication_ns;
    sum.overlap_ns += rank.whole.overlap_ns;
    sum.data_wait_ns += rank.whole.data_wait_ns;
    for (const auto& step : rank.steps) steps.push_back(static_cast<double>(step.time.span_ns));
  }
  if (sum.span_ns == 0) return;
  const auto share = [&sum](int64_t part) { return double(part) / double(sum.span_ns); };
  if (!steps.empty()) {
    const auto [value, unit] = split_unit(format_ns(median(steps)));
    cards.push_back(card("Step time", value, unit, "median of the recorded steps"));
  }
  const double exposed = share(sum.exposed_communication_ns);
  const double hidden =
      sum.communication_ns > 0 ? double(sum.overlap_ns) / double(sum.communication_ns) : 0;
  cards.push_back(card("Exposed communication",
                       format("%.1f", 100 * exposed),
                       "%",
                       sum.communication_ns == 0 ? "no communication recorded"
                       : exposed > kBadCommunication
                           ? "of the recorded steps; over 30 % is bad"
                           : format("of the recorded steps; %.0f %% is hidden", 100 * hidden),
                       sum.communication_ns == 0       ? ""
                       : exposed > kBadCommunication   ? "bad"
                       : exposed <= kGoodCommunication ? "good"
                                                       : "warn"));
  if (const double waiting = share(sum.data_wait_ns); waiting > kBadDataWait) {
    cards.push_back(card("Waiting for data",
                         format("%.1f", 100 * waiting),
                         "%",
                         "the data loader does not keep up",
                         "bad"));
  }
}

void memory_card(const std::vector<RankMemory>& peaks, int64_t capacity, Json& cards) {
  if (peaks.empty()) return;
  const auto largest =
      std::max_element(peaks.begin(), peaks.end(), [](const auto& a, const auto& b) {
        return a.peak_bytes < b.peak_bytes;
      });
  const auto [value, unit] = split_unit(format_bytes(double(largest->peak_bytes)));
  std::string note = format("rank %d", largest->rank);
  bool near_edge = false;
  if (capacity > 0) {
    const double used = double(largest->peak_bytes) / double(capacity);
    near_edge = used > kMemoryNearEdge;
    note += format(", %.0f %% of ", 100 * used) + format_bytes(double(capacity));
  }
  cards.push_back(card("Peak memory", value, unit, note, near_edge ? "bad" : ""));
}

}  // namespace

RankMemory RankMemory::of(int32_t rank, const MemoryLedger& ledger, size_t holders) {
  RankMemory out;
  out.rank = rank;
  out.peak_bytes = ledger.peak();
  out.at_peak = ledger.at_peak();
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    for (const auto& [name, bytes] : ledger.holders(category)) {
      out.holders.push_back({category, name, bytes});
    }
  }
  std::stable_sort(out.holders.begin(), out.holders.end(), [](const Holder& a, const Holder& b) {
    return a.bytes > b.bytes;
  });
  if (out.holders.size() > holders) out.holders.resize(holders);
  return out;
}

Json report_data(const ReportInput& input) {
  Json facts = Json::array(), cards = Json::array(), warnings = Json::array(),
       images = Json::array();
  for (const auto& [label, value] : input.facts) facts.push_back({label, value});
  for (const auto& text : input.warnings) warnings.push_back(text);
  std::vector<RankBreakdown> breakdowns;
  if (input.timeline != nullptr) {
    for (const auto& rank : input.timeline->ranks) breakdowns.push_back(breakdown(rank));
  }
  const std::vector<RankMemory> peaks = memory_peaks(input);
  metrics_cards(input.metrics, cards);
  time_cards(breakdowns, cards);
  memory_card(peaks, input.memory_capacity_bytes, cards);
  for (const auto& [title, path] : input.images) {
    try {
      images.push_back({{"title", title}, {"uri", image_data_uri(path)}});
    } catch (const Error& error) {
      warnings.push_back("A picture is left out: " + std::string(error.what()));
    }
  }
  Json timeline = timeline_json(input, warnings);
  return {{"title", input.title},
          {"subtitle", input.subtitle},
          {"footer", input.footer},
          {"facts", std::move(facts)},
          {"cards", std::move(cards)},
          {"warnings", std::move(warnings)},
          {"images", std::move(images)},
          {"metrics", metrics_json(input.metrics)},
          {"breakdown", breakdown_json(breakdowns)},
          {"memory", memory_json(input, peaks)},
          {"timeline", std::move(timeline)}};
}

}  // namespace vitrine
