// Rule: a card that runs below its speed: hot, throttled, at half power with full memory, or slower
// than its peers in the same kernels.
#include <algorithm>
#include <cctype>
#include <optional>

#include "analysis/rules/job_view.h"
#include "analysis/rules/rules.h"
#include "core/format.h"

namespace vitrine::rules {
namespace {

// From here on data-centre cards lower their clocks (slowdown is at 85 to 95 degrees).
constexpr double kHotCelsius = 85;
// Clock far under what the same card reached in the same run.
constexpr double kClockDrop = 0.85;
// A card of a busy job draws most of its limit.
constexpr double kHalfPower = 0.5;
constexpr double kFullMemory = 0.9;
// The spread of good cards of one kind is a few per cent.
constexpr double kSlowerCard = 1.1;

// The first counter whose name has all words. A limit is no reading, so it has to be asked for.
const CounterFacts* counter(const RankFacts& rank, std::initializer_list<const char*> words) {
  const bool limits = std::any_of(
      words.begin(), words.end(), [](const char* word) { return std::string(word) == "limit"; });
  for (const CounterFacts& one : rank.counters) {
    std::string name = one.name;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    const bool all = std::all_of(words.begin(), words.end(), [&](const char* word) {
      return name.find(word) != std::string::npos;
    });
    const bool limit = name.find("limit") != std::string::npos;
    if (all && limit == limits && one.samples > 0) return &one;
  }
  return nullptr;
}

Finding start(int32_t rank, const std::string& title, double confidence) {
  Finding finding;
  finding.rule = "throttled_card";
  finding.ranks = {rank};
  finding.title = title;
  finding.confidence = confidence;
  finding.fix = {
      "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK on that card: the reasons for "
      "its clocks, and its limits",
      "cooling and power of that host; nvidia-smi -pl (power limit), no -lgc lock; exchange "
      "the card for another and see whether the slowness moves with it"};
  return finding;
}

void from_counters(const RankFacts& rank, RuleOutput& out) {
  std::vector<std::string> signs;
  if (const auto* hot = counter(rank, {"temperature"}); hot != nullptr && hot->max >= kHotCelsius) {
    signs.push_back(format("%s up to %.0f", hot->name.c_str(), hot->max));
  }
  if (const auto* reason = counter(rank, {"throttle"}); reason != nullptr && reason->max > 0) {
    signs.push_back(format("%s not zero in %lld samples' range",
                           reason->name.c_str(),
                           static_cast<long long>(reason->samples)));
  }
  if (const auto* clock = counter(rank, {"sm", "clock"});
      clock != nullptr && clock->max > 0 && clock->mean < kClockDrop * clock->max) {
    signs.push_back(
        format("%s: mean %.0f against %.0f at best", clock->name.c_str(), clock->mean, clock->max));
  }
  if (signs.size() >= 2 ||
      (signs.size() == 1 && signs.front().find("hrottle") != std::string::npos)) {
    Finding finding = start(rank.rank, format("Throttled card of rank %d", rank.rank), 0.7);
    finding.summary =
        "The counters say that this card lowered its clocks: " + join(signs, "; ") + ".";
    finding.cause = "Heat or a power limit.";
    for (const std::string& sign : signs) finding.evidence.push_back({sign, rank.rank});
    out.findings.push_back(std::move(finding));
  }
  const auto* power = counter(rank, {"power"});
  const auto* limit = counter(rank, {"power", "limit"});
  const auto* memory = counter(rank, {"memory", "used"});
  const double capacity = static_cast<double>(rank.memory.capacity);
  if (power != nullptr && limit != nullptr && power != limit && limit->max > 0 &&
      memory != nullptr && capacity > 0 && power->mean < kHalfPower * limit->max &&
      memory->max > kFullMemory * capacity) {
    Finding finding =
        start(rank.rank, format("Half power with full memory, rank %d", rank.rank), 0.5);
    finding.summary = format("The card of rank %d holds %s of its memory and draws %.0f of %.0f W.",
                             rank.rank,
                             percent(memory->max / capacity).c_str(),
                             power->mean,
                             limit->max);
    finding.cause = "Its units do not get work: it waits for host, memory or other ranks.";
    finding.evidence.push_back({finding.summary, rank.rank});
    finding.fix = {
        "see the other findings for what it waits for; the batch can't grow, so the work must "
        "come denser"};
    out.findings.push_back(std::move(finding));
  }
}

struct Slower {
  double ratio = 1;       // time-weighted, of the same kernels
  double slow_share = 0;  // of that time, in kernels that are slower
  int64_t kernels = 0;    // kinds compared
  int64_t own_ns = 0, usual_ns = 0;
};

// The mean duration of kernels that ran equally often here and on every other rank, against the
// others' median: equal counts stand for equal work.
std::optional<Slower> against_peers(const JobView& view, const RankView& rank) {
  constexpr int64_t kTimes = 5;
  std::map<std::string, std::vector<int64_t>> others;
  std::map<std::string, int64_t> counts;
  for (const KernelRow& row : rank.facts->kernels) {
    if (!row.communication && !row.copy && row.count >= kTimes) counts[row.name] = row.count;
  }
  for (const RankView& other : view.ranks) {
    if (other.rank == rank.rank || other.facts->device != rank.facts->device) continue;
    for (const KernelRow& row : other.facts->kernels) {
      const auto found = counts.find(row.name);
      if (found != counts.end() && found->second == row.count)
        others[row.name].push_back(row.total_ns);
    }
  }
  Slower out;
  int64_t slow_ns = 0;
  for (const KernelRow& row : rank.facts->kernels) {
    const auto found = others.find(row.name);
    if (found == others.end() || found->second.size() + 1 < view.ranks.size()) continue;
    const int64_t usual_ns = median(found->second);
    out.own_ns += row.total_ns;
    out.usual_ns += usual_ns;
    ++out.kernels;
    if (static_cast<double>(row.total_ns) > kSlowerCard * static_cast<double>(usual_ns)) {
      slow_ns += row.total_ns;
    }
  }
  // A comparison of a handful of kernels, or of little of the compute, says nothing of the card.
  if (out.kernels < 5 || out.usual_ns <= 0 || out.own_ns * 2 < rank.facts->total.compute_ns) {
    return std::nullopt;
  }
  out.ratio = static_cast<double>(out.own_ns) / static_cast<double>(out.usual_ns);
  out.slow_share = static_cast<double>(slow_ns) / static_cast<double>(out.own_ns);
  return out;
}

void from_peers(const JobView& view, const RankView& rank, RuleOutput& out) {
  const auto slower = against_peers(view, rank);
  // Nearly all kernels, not a few: a few would be other data, all of them the card.
  if (!slower || slower->ratio < kSlowerCard || slower->slow_share < 0.8) return;
  Finding finding = start(rank.rank, format("Slow card of rank %d", rank.rank), 0.6);
  // Its lateness is charged by straggler and collective_wait; alone it is a warning without a time.
  finding.summary = format("The same kernels take %.2f times as long on rank %d as on the others.",
                           slower->ratio,
                           rank.rank);
  finding.evidence.push_back(
      {format("rank %d: %lld kinds of kernels that run equally often on all ranks: "
              "%s against %s; %s of the time in slower ones",
              rank.rank,
              static_cast<long long>(slower->kernels),
              format_ns(static_cast<double>(slower->own_ns)).c_str(),
              format_ns(static_cast<double>(slower->usual_ns)).c_str(),
              percent(slower->slow_share).c_str()),
       rank.rank});
  finding.cause = "Lower clocks (heat, power limit, a lock), or another job on the card.";
  out.findings.push_back(std::move(finding));
}

}  // namespace

void throttled_card(const JobView& view, RuleOutput& out) {
  const JobFacts& job = *view.job;
  bool counters = false;
  for (const RankFacts& rank : job.ranks) {
    counters = counters || !rank.counters.empty();
    from_counters(rank, out);
  }
  if (view.ranks.size() > 1) {
    for (const RankView& rank : view.ranks) from_peers(view, rank, out);
  }
  if (!counters && !view.ranks.empty()) {
    out.abstained.push_back(
        "throttled_card: no counters of temperature, clocks or power in the input");
  }
}

}  // namespace vitrine::rules
