// The parts of a Kineto trace around its events: devices, ranks, process groups.
#pragma once

#include <simdjson.h>

#include "readers/kineto_finish.h"

namespace vitrine {

namespace kineto_json {

using Value = simdjson::ondemand::value;
using Object = simdjson::ondemand::object;
using JsonType = simdjson::ondemand::json_type;

// The text of a scalar as it stands in the file, strings without quotes and escapes resolved.
inline std::string_view text_of(Value value) {
  if (value.type() == JsonType::string) return value.get_string();
  std::string_view token = value.raw_json_token();
  while (!token.empty() && static_cast<unsigned char>(token.back()) <= ' ') token.remove_suffix(1);
  return token;
}

inline bool scalar(Value& value) {
  const JsonType type = value.type();
  return type != JsonType::object && type != JsonType::array;
}

}  // namespace kineto_json

// deviceProperties: a list, or one object in some versions.
void read_kineto_devices(kineto_json::Value value, RankTimeline& timeline);
// distributedInfo.
void read_kineto_ranks(kineto_json::Object object, KinetoDraft& draft);
// "[0, 1]"; a list with "..." left out stays unknown.
std::vector<int32_t> ranks_of_text(std::string_view text);

}  // namespace vitrine
