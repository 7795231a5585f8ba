// Writing and reading of the plain JSON form of a timeline.
#include "timeline/timeline_json.h"

#include "core/error.h"
#include "core/json.h"

namespace vitrine {

namespace {

// One array, an element a line.
template <typename Items, typename Make>
void append_list(std::string& out, const char* key, const Items& items, Make&& make) {
  out += std::string(",\n\"") + key + "\": [";
  for (size_t i = 0; i < items; ++i) {
    out += (i == 0 ? "\n " : ",\n ") + make(i).dump();
  }
  out += items == 0 ? "]" : "\n]";
}

Json collective_json(const RankTimeline& timeline, const Collective& collective) {
  return Json{{"name", timeline.strings[collective.name]},
              {"group", timeline.strings[collective.group]},
              {"ranks", collective.ranks},
              {"sequence", collective.sequence},
              {"in_elements", collective.in_elements},
              {"out_elements", collective.out_elements},
              {"sent_bytes", collective.sent_bytes},
              {"dtype", timeline.strings[collective.dtype]},
              {"peer", collective.peer}};
}

Json span_json(const RankTimeline& timeline, size_t i) {
  const Spans& spans = timeline.spans;
  Json json{{"start_ns", spans.start_ns[i]},
            {"duration_ns", spans.duration_ns[i]},
            {"kind", span_kind_name(spans.kind[i])},
            {"name", timeline.strings[spans.name[i]]},
            {"lane", timeline.lanes[static_cast<size_t>(spans.lane[i])].name}};
  if (spans.step[i] >= 0) json["step"] = spans.step[i];
  if (spans.micro_batch[i] >= 0) json["micro_batch"] = spans.micro_batch[i];
  if (spans.block[i] != kNoString) json["block"] = timeline.strings[spans.block[i]];
  if (spans.correlation[i] != 0) json["correlation"] = spans.correlation[i];
  if (spans.collective[i] >= 0) {
    json["collective"] =
        collective_json(timeline, timeline.collectives[static_cast<size_t>(spans.collective[i])]);
  }
  return json;
}

Collective read_collective(const Json& json, const std::string& where, StringPool& strings) {
  JsonReader reader(json, where);
  Collective out;
  out.name = strings.intern(reader.text("name", ""));
  out.group = strings.intern(reader.text("group", ""));
  for (const Json& rank : reader.raw("ranks")) out.ranks.push_back(rank.get<int32_t>());
  out.sequence = reader.integer("sequence", -1);
  out.in_elements = reader.integer("in_elements", 0);
  out.out_elements = reader.integer("out_elements", 0);
  out.sent_bytes = reader.integer("sent_bytes", 0);
  out.dtype = strings.intern(reader.text("dtype", ""));
  out.peer = static_cast<int32_t>(reader.integer("peer", -1, -1, INT32_MAX));
  reader.finish();
  return out;
}

void read_span(const Json& json, const std::string& where, RankTimeline& out) {
  JsonReader reader(json, where);
  Spans& spans = out.spans;
  spans.start_ns.push_back(reader.integer("start_ns", 0));
  spans.duration_ns.push_back(reader.integer("duration_ns", 0, 0, INT64_MAX));
  spans.kind.push_back(span_kind_from_name(reader.text("kind", "")));
  spans.name.push_back(out.strings.intern(reader.text("name", "")));
  const std::string lane = reader.text("lane", "");
  int32_t lane_index = -1;
  for (size_t i = 0; i < out.lanes.size(); ++i) {
    if (out.lanes[i].name == lane) lane_index = static_cast<int32_t>(i);
  }
  if (lane_index < 0) throw ConfigError(where + ".lane: \"" + lane + "\" is not in \"lanes\"");
  spans.lane.push_back(lane_index);
  spans.step.push_back(static_cast<int32_t>(reader.integer("step", -1, -1, INT32_MAX)));
  spans.micro_batch.push_back(
      static_cast<int32_t>(reader.integer("micro_batch", -1, -1, INT32_MAX)));
  spans.block.push_back(out.strings.intern(reader.text("block", "")));
  spans.correlation.push_back(reader.integer("correlation", 0));
  spans.bytes.push_back(reader.integer("bytes", 0));
  spans.shapes.push_back(kNoString);
  const Json& collective = reader.raw("collective");
  spans.collective.push_back(collective.is_null() ? -1
                                                  : static_cast<int32_t>(out.collectives.size()));
  if (!collective.is_null()) {
    out.collectives.push_back(read_collective(collective, where + ".collective", out.strings));
  }
  reader.finish();
}

std::string at(const char* list, size_t i) {
  return std::string(list) + "[" + std::to_string(i) + "]";
}

void read_body(const Json& json, RankTimeline& out) {
  JsonReader reader(json, "");
  const int64_t version = reader.integer("version", -1);
  if (version != kTimelineJsonVersion) {
    throw ConfigError("version: expected " + std::to_string(kTimelineJsonVersion) + ", got " +
                      std::to_string(version));
  }
  out.rank = static_cast<int32_t>(reader.integer("rank", 0, 0, INT32_MAX));
  out.world_size = static_cast<int32_t>(reader.integer("world_size", 1, 1, INT32_MAX));
  out.source = reader.text("source", "");
  out.wall_anchor_ns = reader.integer("wall_anchor_ns", 0);
  for (const auto& [key, value] : reader.raw("info").items())
    out.info[key] = value.get<std::string>();
  size_t i = 0;
  for (const Json& item : reader.raw("lanes")) {
    JsonReader lane(item, at("lanes", i++));
    out.lanes.push_back(
        {lane.text("name", ""), lane.boolean("device", false), lane.integer("tid", 0)});
    lane.finish();
  }
  i = 0;
  for (const Json& item : reader.raw("spans")) read_span(item, at("spans", i++), out);
  i = 0;
  for (const Json& item : reader.raw("memory")) {
    JsonReader sample(item, at("memory", i++));
    MemorySample value{sample.integer("time_ns", 0), {}};
    value.bytes = sample.raw("bytes").get<decltype(value.bytes)>();
    sample.finish();
    out.memory.push_back(value);
  }
  i = 0;
  for (const Json& item : reader.raw("counters")) {
    JsonReader sample(item, at("counters", i++));
    out.counters.push_back({sample.integer("time_ns", 0),
                            out.strings.intern(sample.text("name", "")),
                            sample.number("value", 0)});
    sample.finish();
  }
  reader.finish();
}

}  // namespace

std::string to_json(const RankTimeline& timeline) {
  std::string out = "{\n\"version\": " + std::to_string(kTimelineJsonVersion);
  out += ",\n\"rank\": " + std::to_string(timeline.rank);
  out += ",\n\"world_size\": " + std::to_string(timeline.world_size);
  out += ",\n\"source\": " + Json(timeline.source).dump();
  out += ",\n\"wall_anchor_ns\": " + std::to_string(timeline.wall_anchor_ns);
  out += ",\n\"info\": " + Json(timeline.info).dump();
  append_list(out, "lanes", timeline.lanes.size(), [&](size_t i) {
    const Lane& lane = timeline.lanes[i];
    return Json{{"name", lane.name}, {"device", lane.device}, {"tid", lane.tid}};
  });
  append_list(
      out, "spans", timeline.spans.size(), [&](size_t i) { return span_json(timeline, i); });
  append_list(out, "memory", timeline.memory.size(), [&](size_t i) {
    return Json{{"time_ns", timeline.memory[i].time_ns}, {"bytes", timeline.memory[i].bytes}};
  });
  append_list(out, "counters", timeline.counters.size(), [&](size_t i) {
    const CounterSample& sample = timeline.counters[i];
    return Json{{"time_ns", sample.time_ns},
                {"name", timeline.strings[sample.name]},
                {"value", sample.value}};
  });
  return out + "\n}\n";
}

RankTimeline rank_timeline_from_json(const std::string& text, const std::string& source) {
  const Json json = parse_json(text, source);
  RankTimeline out;
  try {
    read_body(json, out);
  } catch (const ConfigError& error) {
    throw ConfigError(source + ": " + error.what());
  } catch (const Json::exception& error) {  // a wrong type inside an array
    throw ConfigError(source + ": not a timeline: " + error.what());
  }
  return out;
}

}  // namespace vitrine
