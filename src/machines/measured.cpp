// Measurements as JSON.
#include "machines/measured.h"

#include "core/error.h"
#include "core/json.h"

namespace vitrine {
namespace {

const Json& list(JsonReader& in, const char* key) {
  const Json& value = in.raw(key);
  if (value.is_array()) return value;
  throw ConfigError(in.path_of(key) + ": expected a list");
}

MeasuredRow row_from_json(const Json& json, const std::string& where) {
  JsonReader in(json, where);
  MeasuredRow row;
  row.op = in.text("op", "");
  if (row.op.empty()) throw ConfigError(in.path_of("op") + ": is missing");
  row.backward = in.boolean("backward", false);
  for (const Json& feature : list(in, "features")) {
    if (!feature.is_number()) throw ConfigError(in.path_of("features") + ": expected numbers");
    row.features.push_back(feature.get<double>());
  }
  row.work = in.positive("work");
  row.ns = in.positive("ns");
  in.finish();
  return row;
}

int small_count(JsonReader& in, const char* key) {
  return static_cast<int>(in.integer(key, 1, 1, 1 << 20));
}

}  // namespace

Json measured_json(const MeasuredMachine& machine) {
  Json operations = Json::array(), collectives = Json::array();
  for (const MeasuredOperations& each : machine.operations) {
    Json rows = Json::array();
    for (const MeasuredRow& row : each.rows) {
      rows.push_back({{"op", row.op},
                      {"backward", row.backward},
                      {"features", row.features},
                      {"work", row.work},
                      {"ns", row.ns}});
    }
    operations.push_back(
        {{"threads", each.threads}, {"ranks", each.ranks}, {"dtype", each.dtype}, {"rows", rows}});
  }
  for (const MeasuredCollective& each : machine.collectives) {
    collectives.push_back({{"kind", each.kind},
                           {"ranks", each.ranks},
                           {"bytes", each.bytes},
                           {"ns", each.ns},
                           {"cores", each.cores}});
  }
  return {{"processor", machine.processor},
          {"cpus", machine.cpus},
          {"handoff_ns", machine.handoff_ns},
          {"disk_write_bytes_per_s", machine.disk_write_bytes_per_s},
          {"disk_read_bytes_per_s", machine.disk_read_bytes_per_s},
          {"operations", operations},
          {"collectives", collectives}};
}

MeasuredMachine measured_from_json(const Json& json, const std::string& where) {
  JsonReader in(json, where);
  MeasuredMachine machine;
  machine.processor = in.text("processor", "");
  machine.cpus = small_count(in, "cpus");
  machine.handoff_ns = in.positive("handoff_ns");
  machine.disk_write_bytes_per_s = in.number("disk_write_bytes_per_s", 0);
  machine.disk_read_bytes_per_s = in.number("disk_read_bytes_per_s", 0);
  for (const Json& each : list(in, "operations")) {
    const std::string at =
        in.path_of("operations") + "[" + std::to_string(machine.operations.size()) + "]";
    JsonReader inner(each, at);
    MeasuredOperations operations;
    operations.threads = small_count(inner, "threads");
    operations.ranks = small_count(inner, "ranks");
    operations.dtype = inner.choice("dtype", "f32", {"f32", "bf16", "f16"});
    for (const Json& row : list(inner, "rows")) {
      operations.rows.push_back(
          row_from_json(row, at + ".rows[" + std::to_string(operations.rows.size()) + "]"));
    }
    inner.finish();
    machine.operations.push_back(std::move(operations));
  }
  for (const Json& each : list(in, "collectives")) {
    JsonReader inner(
        each, in.path_of("collectives") + "[" + std::to_string(machine.collectives.size()) + "]");
    MeasuredCollective collective;
    collective.kind =
        inner.choice("kind",
                     "all_gather",
                     {"all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "send"});
    collective.ranks = static_cast<int>(inner.integer("ranks", 2, 2, 1 << 20));
    collective.bytes = inner.positive("bytes");
    collective.ns = inner.positive("ns");
    collective.cores = inner.number("cores", 0);
    inner.finish();
    machine.collectives.push_back(collective);
  }
  in.finish();
  if (machine.operations.empty()) throw ConfigError(where + ".operations: is empty");
  return machine;
}

MeasuredMachine read_measured(const std::string& profile_file) {
  const Json file = read_json_file(profile_file);
  if (file.is_object() && file.contains("measured_gpus")) {
    throw ConfigError(profile_file +
                      ": is a profile of GPUs, for plans with --gpus; vitrine calibrate without "
                      "--device gpu measures CPU ranks into one for --ranks");
  }
  if (!file.is_object() || !file.contains("measured")) {
    throw ConfigError(profile_file +
                      ": has no \"measured\" section; make one with vitrine calibrate --out FILE");
  }
  return measured_from_json(file.at("measured"), profile_file + ": measured");
}

}  // namespace vitrine
