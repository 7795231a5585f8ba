// Written and read as JSON.
#include "inspect/merged_ranks.h"

#include "core/json.h"

namespace vitrine {
namespace {

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string merged_ranks_text(const std::vector<MergedRank>& ranks) {
  std::string out = "[";
  for (const MergedRank& rank : ranks) {
    Json processes = Json::object();
    for (const auto& [pid, own] : rank.processes) processes[pid] = own;
    out += (out.size() > 1 ? ",\n" : "\n") + ("{\"rank\": " + std::to_string(rank.rank)) +
           ", \"offset_ns\": " + std::to_string(rank.offset_ns) +
           ", \"processes\": " + dumped(processes) + ", \"header\": " + rank.header + "}";
  }
  return out + "]";
}

std::vector<MergedRank> merged_ranks_of(const std::string& text) {
  std::vector<MergedRank> out;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array()) return out;
  for (const Json& one : json) {
    if (!one.is_object() || !one.contains("rank") || !one["rank"].is_number_integer()) continue;
    MergedRank rank;
    rank.rank = one["rank"].get<int32_t>();
    if (one.contains("offset_ns") && one["offset_ns"].is_number_integer())
      rank.offset_ns = one["offset_ns"].get<int64_t>();
    const Json& processes = one.contains("processes") ? one["processes"] : Json::object();
    for (const auto& [pid, own] : processes.items()) {
      if (own.is_string()) rank.processes.emplace_back(pid, own.get<std::string>());
    }
    rank.header = one.contains("header") ? dumped(one["header"]) : "{}";
    out.push_back(std::move(rank));
  }
  return out;
}

}  // namespace vitrine
