// Reading of what stands around the events.
#include "readers/kineto_header.h"

#include "readers/decimal.h"

namespace vitrine {

using namespace kineto_json;

namespace {

void read_device(Object device, std::map<std::string, std::string>& info) {
  for (auto field : device) {
    const std::string_view key = field.unescaped_key();
    Value value = field.value();
    if (key == "name" && scalar(value)) info.emplace("device", text_of(value));
    if (key == "totalGlobalMem" && scalar(value))
      info.emplace("device.memory_bytes", text_of(value));
  }
}

void read_group(Object object, KinetoDraft& draft) {
  std::string name;
  std::vector<int32_t> ranks;
  for (auto field : object) {
    const std::string_view key = field.unescaped_key();
    Value value = field.value();
    if (key == "pg_name" && scalar(value)) name = text_of(value);
    if (key != "ranks") continue;
    if (value.type() == JsonType::array) {
      for (Value rank : value.get_array())
        ranks.push_back(static_cast<int32_t>(first_integer(text_of(rank))));
    } else if (value.type() == JsonType::string) {
      ranks = ranks_of_text(value.get_string());
    }
  }
  if (!ranks.empty()) draft.group_ranks[name] = std::move(ranks);
}

}  // namespace

void read_kineto_devices(Value value, RankTimeline& timeline) {
  if (value.type() == JsonType::object) {  // some versions write one object instead of a list
    read_device(value.get_object(), timeline.info);
  } else if (value.type() == JsonType::array) {
    for (Value device : value.get_array()) {
      if (device.type() == JsonType::object) read_device(device.get_object(), timeline.info);
    }
  }
}

void read_kineto_ranks(Object object, KinetoDraft& draft) {
  for (auto field : object) {
    const std::string_view key = field.unescaped_key();
    Value value = field.value();
    if (key == "rank" && scalar(value)) {
      draft.timeline.rank = static_cast<int32_t>(first_integer(text_of(value)));
      draft.rank_known = true;
    } else if (key == "world_size" && scalar(value)) {
      draft.timeline.world_size = static_cast<int32_t>(first_integer(text_of(value)));
      draft.world_size_known = true;
    } else if ((key == "backend" || key == "nccl_version") && scalar(value)) {
      draft.timeline.info.emplace(key, text_of(value));
    } else if (key == "pg_config" && value.type() == JsonType::array) {
      for (Value group : value.get_array()) {
        if (group.type() == JsonType::object) read_group(group.get_object(), draft);
      }
    }
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
    ranks.push_back(static_cast<int32_t>(first_integer(text.substr(i))));
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
  }
  return ranks;
}

}  // namespace vitrine
