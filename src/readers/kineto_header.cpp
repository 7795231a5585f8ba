// Reading of what stands around the events.
#include "readers/kineto_header.h"

#include <algorithm>
#include <cstring>

#include "core/json.h"
#include "readers/decimal.h"
#include "readers/json_scan.h"

namespace vitrine {

using namespace json_scan;

namespace {

constexpr size_t kLongestList = size_t{1} << 18;
constexpr size_t kMostMerged = size_t{1} << 16;  // ranks in one file

// The text of a scalar, "" of anything else.
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_structured() || value.is_null() ? "" : value.dump();
}

// The same of a value as it stands in the file.
std::string text_of(std::string_view value) {
  uint8_t mended = 0;
  if (value.size() >= 2 && value.front() == '"') {
    return text_of_raw(value.substr(1, value.size() - 2), mended);
  }
  return value.empty() || value.front() == '{' || value.front() == '[' ? "" : std::string(value);
}

// A whole number, perhaps in quotes; -1 = anything else.
int64_t time_of(std::string_view value) {
  if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
  const bool digits = !value.empty() && value.size() <= 19 &&
                      value.find_first_not_of("0123456789") == std::string_view::npos;
  return digits ? first_amount(value) : -1;
}

Json parsed(std::string_view value) {
  // Damaged metadata is no reason to give up the events.
  return Json::parse(value, nullptr, false, true);
}

int32_t small(const Json& value) {
  const std::string text = text_of(value);
  if (text.find_first_of("0123456789") == std::string::npos) return -1;
  const int64_t number = first_integer(text);
  return number < 0 || number > INT32_MAX ? -1 : static_cast<int32_t>(number);
}

// Sizes and ranks that can't be: how many, and the first one.
class Odd {
 public:
  void add(const char* key, const Json& value, const Json& where) {
    if (count_++ > 0) return;
    first_ = std::string(key) + " = " + shortened(value.dump(-1, ' ', false, kReplace)) + " in " +
             shortened(where.dump(-1, ' ', false, kReplace));
  }
  void warn(std::vector<std::string>& warnings) const {
    if (count_ == 0) return;
    warnings.push_back("distributedInfo has " + std::to_string(count_) +
                       " sizes or ranks that can't be, or do not agree: they are taken as not "
                       "known, a group's size from its ranks (the first: " +
                       first_ + ")");
  }

 private:
  static constexpr auto kReplace = Json::error_handler_t::replace;
  static std::string shortened(std::string text) {
    constexpr size_t kMost = 120;
    if (text.size() > kMost) text = text.substr(0, kMost) + "...";
    return text;
  }
  int64_t count_ = 0;
  std::string first_;
};

ProcessGroup group_of(const Json& config, Odd& odd) {
  ProcessGroup group;
  for (const auto& [key, value] : config.items()) {
    if (key == "pg_name") group.name = text_of(value);
    if (key == "pg_desc") group.description = text_of(value);
    if (key == "pg_size") {
      group.size = std::max(0, small(value));
      if (group.size == 0) odd.add("pg_size", value, config);
    }
    if (key == "ranks" && value.is_string()) group.ranks = ranks_of_text(text_of(value));
    if (key == "ranks" && value.is_array() && value.size() <= kLongestList) {
      for (const Json& rank : value) {
        group.ranks.push_back(small(rank));
        if (small(rank) < 0 && rank != "...") odd.add("ranks", value, config);
      }
      if (std::find(group.ranks.begin(), group.ranks.end(), -1) != group.ranks.end())
        group.ranks.clear();  // "..." among them
    }
  }
  if (group.size == 0) group.size = static_cast<int32_t>(group.ranks.size());
  if (!group.ranks.empty() && group.size != static_cast<int32_t>(group.ranks.size())) {
    odd.add("pg_size", group.size, config);
    group.size = static_cast<int32_t>(group.ranks.size());
  }
  return group;
}

}  // namespace

HeaderStop KinetoHeader::scan(std::string_view text, size_t& at) {
  const char *begin = text.data(), *end = begin + text.size();
  const auto stop = [&](const char* p) { return p >= end ? HeaderStop::kMore : HeaderStop::kBad; };
  for (const char* p = begin + at;; at = static_cast<size_t>(p - begin)) {
    p = skip_space(p);
    while (*p == ',') p = skip_space(p + 1);
    if (*p == '}') return at = static_cast<size_t>(p + 1 - begin), HeaderStop::kEnd;
    if (*p != '"') return stop(p);
    bool special = false;
    const char* key = p + 1;
    p = string_end(key, end, special);
    if (p == nullptr) return HeaderStop::kMore;
    const std::string_view name(key, static_cast<size_t>(p - key));
    p = skip_space(p + 1);
    if (*p != ':') return stop(p);
    p = skip_space(p + 1);
    if (p >= end) return HeaderStop::kMore;
    if (name == "traceEvents" && *p == '[') {
      events_seen_ = true;
      return at = static_cast<size_t>(p + 1 - begin), HeaderStop::kEvents;
    }
    const char* value = p;
    const Outcome outcome = skip_value(p, end);
    if (outcome == Outcome::kIncomplete) return HeaderStop::kMore;
    if (outcome == Outcome::kBad) return HeaderStop::kBad;
    take(name, {value, static_cast<size_t>(p - value)});
  }
}

void KinetoHeader::take(std::string_view key, std::string_view value) {
  auto& info = draft_.timeline.info;
  if (key == "baseTimeNanoseconds") {
    base_ns_ = time_of(value);
    if (base_ns_ < 0 || base_ns_ > INT64_MAX / 2) {
      draft_.timeline.warnings.push_back("baseTimeNanoseconds is no time (" + std::string(value) +
                                         "): the trace's clock is not known");
      base_ns_ = 0;
    }
  } else if (key == "distributedInfo") {
    read_ranks(value);
  } else if (key == "mergedRanks") {
    read_merged(value);
  } else if (key == "deviceProperties") {
    read_devices(value);
  } else if (key == "vitrine") {
    read_own(value);
  } else if (key == "traceName") {
    trace_name_ = text_of(value);
  } else if (key == "INFO" || key == "WARNING" || key == "ERROR") {
    read_log(value);
  } else if (key == "cuda_runtime_version" || key == "cuda_driver_version" ||
             key == "hip_runtime_version" || key == "hip_driver_version" ||
             key == "roctracer_version" || key == "cupti_version" || key == "record_shapes" ||
             key == "with_stack" || key == "with_flops" || key == "with_modules" ||
             key == "profile_memory" || key == "trace_id") {
    if (key.starts_with("hip_") || key.starts_with("roctracer")) draft_.hip = true;
    info[std::string(key)] = text_of(value);
  }
}

// A list, or one object in some versions.
void KinetoHeader::read_devices(std::string_view value) {
  const Json devices = parsed(value);
  const auto read = [this](const Json& device) {
    if (!device.is_object()) return;
    for (const auto& [key, item] : device.items()) {
      if (key == "name") draft_.timeline.info.emplace("device", text_of(item));
      if (key == "totalGlobalMem")
        draft_.timeline.info.emplace("device.memory_bytes", text_of(item));
      if (key == "numSms") draft_.timeline.info.emplace("device.sms", text_of(item));
    }
  };
  if (devices.is_array()) {
    for (const Json& device : devices) read(device);
  } else {
    read(devices);
  }
}

void KinetoHeader::read_ranks(std::string_view value) {
  const Json ranks = parsed(value);
  if (ranks.is_array()) {  // of a merged file
    for (const Json& one : ranks) {
      if (one.is_object()) read_ranks(one.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    return;
  }
  if (ranks.is_object()) {
    draft_.rank_headers.emplace_back(value);
    if (draft_.rank_headers.size() > 1) return;  // another rank's
  } else {
    draft_.timeline.warnings.push_back(
        "distributedInfo can't be read: rank and process groups are not known from it");
    return;
  }
  Odd odd;
  for (const auto& [key, item] : ranks.items()) {
    if (key == "rank" && small(item) >= 0 && item.is_primitive() && !item.is_null()) {
      draft_.timeline.rank = small(item);
      draft_.rank_known = true;
    } else if (key == "world_size" && small(item) > 0) {
      draft_.timeline.world_size = small(item);
      draft_.world_size_known = true;
    } else if (key == "backend" || key == "nccl_version") {
      draft_.timeline.info.emplace(key, text_of(item));
    } else if (key == "pg_config" && item.is_array()) {
      for (const Json& config : item) {
        if (config.is_object()) draft_.timeline.groups.push_back(group_of(config, odd));
      }
    } else if (key == "rank" || key == "world_size") {
      odd.add(key.c_str(), item, ranks);
    }
  }
  odd.warn(draft_.timeline.warnings);
}

// What `trace merge` notes of each rank (inspect/trace_edit.h).
void KinetoHeader::read_merged(std::string_view value) {
  const Json ranks = parsed(value);
  if (!ranks.is_array()) return;
  for (const Json& one : ranks) {
    if (!one.is_object()) continue;
    KinetoDraft::MergedRank merged;
    merged.rank = -1;
    bool processes = false;  // perhaps none, of a rank without events
    for (const auto& [key, item] : one.items()) {
      if (key == "rank") merged.rank = small(item);
      if (key == "offset_ns" && item.is_number_integer()) merged.offset_ns = item.get<int64_t>();
      if ((key != "processes" && key != "header") || !item.is_object()) continue;
      processes = processes || key == "processes";
      for (const auto& [name, text] : item.items()) {
        if (key == "processes") merged.pids.emplace(name, text_of(text));
        if (key == "header") {
          merged.header.emplace_back(name,
                                     text.dump(-1, ' ', false, Json::error_handler_t::replace));
        }
      }
    }
    if (merged.rank >= 0 && processes && draft_.merged.size() < kMostMerged)
      draft_.merged.push_back(std::move(merged));
  }
}

void KinetoHeader::read_own(std::string_view value) {
  const Json facts = parsed(value);
  if (!facts.is_object()) return;
  draft_.own = true;
  for (const auto& [key, item] : facts.items()) {
    if (!item.is_structured()) draft_.timeline.info[key] = text_of(item);
  }
}

// The profiler's own log: how many records it says it lost.
void KinetoHeader::read_log(std::string_view value) {
  const Json lines = parsed(value);
  if (!lines.is_array()) return;
  for (const Json& line : lines) {
    if (!line.is_string()) continue;
    const std::string& text = line.get_ref<const std::string&>();
    const auto count_of = [&text](const char* what) {
      const size_t at = text.find(what);
      return at == std::string::npos ? int64_t{0}
                                     : first_integer(text.substr(at + std::strlen(what)));
    };
    if (text.find("Record counts:") == std::string::npos) continue;
    const int64_t outside = count_of("Out-of-range ="),
                  lost = count_of("Invalid ext correlations =");
    if (outside > 0 || lost > 0) {
      draft_.timeline.warnings.push_back(
          "the profiler says that it left out " + std::to_string(outside) +
          " records outside of its window and that " + std::to_string(lost) +
          " have no valid external correlation");
    }
    if (count_of("CUPTI stopped early? =") != 0) {
      draft_.timeline.warnings.push_back(
          "the profiler says that it stopped early for want of buffers: device work is missing");
    }
  }
}

void KinetoHeader::finish() {
  if (draft_.own) draft_.timeline.source = trace_name_;
  draft_.timeline.wall_anchor_ns = base_ns_;
  if (!draft_.hip) {
    const auto device = draft_.timeline.info.find("device");
    draft_.hip = device != draft_.timeline.info.end() &&
                 (device->second.find("AMD") != std::string::npos ||
                  device->second.find("Instinct") != std::string::npos ||
                  device->second.find("gfx") != std::string::npos);
  }
}

std::vector<int32_t> ranks_of_text(std::string_view text) {
  std::vector<int32_t> ranks;
  if (text.find("...") != std::string_view::npos) return ranks;
  for (size_t i = 0; i < text.size();) {
    if (text[i] < '0' || text[i] > '9') {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    const int64_t rank = i - begin > 9 ? -1 : first_integer(text.substr(begin, i - begin));
    if (rank < 0 || ranks.size() == kLongestList) return {};
    ranks.push_back(static_cast<int32_t>(rank));
  }
  return ranks;
}

}  // namespace vitrine
