// One file at a time is read; its events go out with the rank's own numbers.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/format.h"
#include "inspect/merged_ranks.h"
#include "inspect/raw_trace.h"
#include "inspect/trace_edit.h"
#include "readers/decimal.h"
#include "timeline/text_sink.h"

namespace vitrine {

namespace {

std::string microseconds(int64_t ns) {
  const bool negative = ns < 0;
  // In unsigned arithmetic, since the smallest int64 has no positive counterpart.
  const uint64_t size = negative ? ~static_cast<uint64_t>(ns) + 1 : static_cast<uint64_t>(ns);
  std::string fraction = std::to_string(size % 1000);
  fraction.insert(0, 3 - fraction.size(), '0');
  return (negative ? "-" : "") + std::to_string(size / 1000) + "." + fraction;
}

// Keeps the ranks' numbers apart: each rank's are moved behind those of the ranks before it.
class Numbers {
 public:
  std::string moved(std::string_view token) {
    const int64_t number = first_integer(token);
    highest_ = std::max(highest_, number);
    return std::to_string(number + offset_);
  }
  // Of flows, whose ids are quoted in some versions.
  std::string moved_like(std::string_view token) {
    const std::string text = moved(token);
    return !token.empty() && token.front() == '"' ? "\"" + text + "\"" : text;
  }
  void next_rank() {
    offset_ += std::max<int64_t>(0, highest_) + 1;
    highest_ = 0;
  }

 private:
  int64_t offset_ = 0, highest_ = 0;
};

class Merger {
 public:
  explicit Merger(TextSink& sink) : sink_(sink) {}

  void add(const RawTrace& trace, const MergeInput& input) {
    pids_.clear();
    rank_ = input.rank;
    shift_ns_ = input.offset_ns;
    damaged_ += trace.for_each_event([&](const RawEvent& event) { pass(event); });
    correlations_.next_rank(), flows_.next_rank(), externals_.next_rank();
    for (const auto& [pid, number] : pids_) {
      if (!named_.contains(number)) name(number, std::string(unquoted(pid)));
      put("{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":" + std::to_string(number) +
          ",\"tid\":0,\"args\":{\"sort_index\":" + std::to_string(number) + "}}");
    }
    note(trace);
  }
  // Of all ranks so far, for the reader that takes them apart again.
  std::string ranks_text() const { return merged_ranks_text(ranks_); }
  MergeResult result() const { return {events_, damaged_}; }

 private:
  void note(const RawTrace& trace) {
    MergedRank rank;
    rank.rank = rank_;
    for (const auto& [pid, number] : pids_)
      rank.processes.emplace_back(std::to_string(number), std::string(unquoted(pid)));
    rank.offset_ns = shift_ns_;
    rank.header = "{";
    if (trace.base_ns() != 0)
      rank.header += "\"baseTimeNanoseconds\": " + std::to_string(trace.base_ns());
    for (const auto& [key, text] : trace.header())
      rank.header += (rank.header.size() > 1 ? ", \"" : "\"") + key + "\": " + text;
    rank.header += "}";
    ranks_.push_back(std::move(rank));
  }

  int64_t pid_of(std::string_view token) {
    const auto [it, fresh] = pids_.emplace(std::string(token), 0);
    if (fresh) {
      it->second = (int64_t{rank_} + 1) * 10000 + static_cast<int64_t>(pids_.size()) - 1;
    }
    return it->second;
  }

  void name(int64_t pid, const std::string& text) {
    named_.insert({pid, true});
    put("{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" + std::to_string(pid) +
        ",\"tid\":0,\"args\":{\"name\":\"rank " + std::to_string(rank_) + ": " + text + "\"}}");
  }

  void pass(const RawEvent& event) {
    const std::string_view phase = unquoted(event.phase), kind = unquoted(event.name);
    if (phase == "M" && kind == "process_sort_index") return;  // ranks have an order of their own
    std::vector<std::pair<std::string_view, std::string>> changes;
    changes.emplace_back(event.pid, std::to_string(pid_of(event.pid)));
    if (phase == "M" && kind == "process_name") {
      const int64_t pid = pid_of(event.pid);
      if (!named_.contains(pid)) name(pid, std::string(unquoted(event.pid)));
      return;
    }
    int64_t start = 0, duration = 0;
    if (event_time(event, start, duration) && phase != "M") {
      changes.emplace_back(event.ts, microseconds(start + shift_ns_));
    }
    if (!event.correlation.empty()) {
      changes.emplace_back(event.correlation, correlations_.moved(event.correlation));
    }
    if (!event.record_correlation.empty() && first_integer(event.record_correlation) >= 0) {
      changes.emplace_back(event.record_correlation, correlations_.moved(event.record_correlation));
    }
    if (!event.external_id.empty()) {
      changes.emplace_back(event.external_id, externals_.moved(event.external_id));
    }
    if (!event.id.empty()) {
      // ac2g arrows carry correlations: they move together.
      Numbers& numbers = unquoted(event.category) == "ac2g" ? correlations_ : flows_;
      changes.emplace_back(event.id, numbers.moved_like(event.id));
    }
    put(with_tokens(event, std::move(changes)));
  }

  void put(std::string_view text) {
    sink_ << (events_ == 0 ? "\n" : ",\n") << text;
    ++events_;
  }

  TextSink& sink_;
  int32_t rank_ = 0;
  int64_t shift_ns_ = 0, events_ = 0, damaged_ = 0;
  std::map<std::string, int64_t> pids_;
  std::map<int64_t, bool> named_;
  std::vector<MergedRank> ranks_;
  Numbers correlations_, flows_, externals_;
};

}  // namespace

namespace {

void refuse_repeated(const std::vector<MergeInput>& inputs) {
  std::map<int32_t, std::string> seen;
  for (const MergeInput& input : inputs) {
    const auto [it, added] = seen.try_emplace(input.rank, input.path);
    if (added) continue;
    throw ConfigError(
        format("%s and %s are both of rank %d, and can't stand side by side in one "
               "trace: give one file a rank",
               it->second.c_str(),
               input.path.c_str(),
               input.rank));
  }
}

void refuse_merged(const RawTrace& trace) {
  for (const auto& [key, text] : trace.header()) {
    if (key != kMergedRanksKey) continue;
    throw ConfigError(trace.path() +
                      " holds several ranks already: merge the ranks' own files, or cut single "
                      "ranks out of it first (vitrine trace cut --rank N)");
  }
}

}  // namespace

MergeResult merge_traces(const std::vector<MergeInput>& inputs, const std::string& output) {
  if (inputs.empty()) throw IoError("no trace to merge");
  refuse_repeated(inputs);
  TextSink sink(output);
  Merger merger(sink);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const RawTrace trace(inputs[i].path);
    refuse_merged(trace);
    if (i == 0) {
      sink << "{\n";
      for (const auto& [key, text] : trace.header()) {
        // What is said of one rank only would be false of the whole.
        if (key == "distributedInfo" || key == "traceName") continue;
        sink << "\"" << key << "\": " << text << ",\n";
      }
      if (trace.base_ns() != 0) {
        sink << "\"baseTimeNanoseconds\": " << trace.base_ns() << ",\n";
      }
      sink << "\"traceEvents\": [";
    }
    merger.add(trace, inputs[i]);
  }
  sink << "\n],\n\"" << kMergedRanksKey << "\": " << merger.ranks_text() << "\n}\n";
  sink.finish();
  return merger.result();
}

}  // namespace vitrine
