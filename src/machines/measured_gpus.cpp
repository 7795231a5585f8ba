// Measurements of GPUs as JSON.
#include "machines/measured_gpus.h"

#include "core/error.h"
#include "core/json.h"

namespace vitrine {
namespace {

std::string word(JsonReader& in, const char* key) {
  std::string text = in.text(key, "");
  if (text.empty()) throw ConfigError(in.path_of(key) + ": is missing");
  return text;
}

// The entries of a list, each read by `read` and without keys that it does not know.
template <typename Entry, typename Read>
void read_list(JsonReader& in, const char* key, std::vector<Entry>& entries, const Read& read) {
  const Json& list = in.raw(key);
  if (!list.is_array()) throw ConfigError(in.path_of(key) + ": expected a list");
  for (const Json& each : list) {
    JsonReader entry(each, in.path_of(key) + "[" + std::to_string(entries.size()) + "]");
    entries.push_back(read(entry));
    entry.finish();
  }
}

}  // namespace

Json measured_gpus_json(const MeasuredGpus& gpus) {
  Json peaks = Json::array(), products = Json::array(), passes = Json::array(),
       collectives = Json::array();
  for (const MeasuredGpus::Peak& each : gpus.peaks) {
    peaks.push_back({{"dtype", each.dtype}, {"flops_per_s", each.flops_per_s}});
  }
  for (const MeasuredGpus::Product& each : gpus.products) {
    products.push_back({{"fp8", each.fp8},
                        {"rows", each.rows},
                        {"in", each.in},
                        {"out", each.out},
                        {"forward_ns", each.forward_ns},
                        {"backward_ns", each.backward_ns}});
  }
  for (const MeasuredGpus::Pass& each : gpus.passes) {
    passes.push_back(
        {{"op", each.op}, {"backward", each.backward}, {"bytes", each.bytes}, {"ns", each.ns}});
  }
  for (const MeasuredGpus::Collective& each : gpus.collectives) {
    collectives.push_back({{"kind", each.kind}, {"bytes", each.bytes}, {"ns", each.ns}});
  }
  return {{"name", gpus.name},
          {"count", gpus.count},
          {"multiprocessors", gpus.multiprocessors},
          {"architecture", gpus.architecture},
          {"memory_bytes", gpus.memory_bytes},
          {"copy_bytes_per_s", gpus.copy_bytes_per_s},
          {"upload_bytes_per_s", gpus.upload_bytes_per_s},
          {"download_bytes_per_s", gpus.download_bytes_per_s},
          {"issue_ns", gpus.issue_ns},
          {"peaks", peaks},
          {"products", products},
          {"passes", passes},
          {"collectives", collectives}};
}

MeasuredGpus measured_gpus_from_json(const Json& json, const std::string& where) {
  JsonReader in(json, where);
  MeasuredGpus gpus;
  gpus.name = word(in, "name");
  gpus.count = static_cast<int>(in.integer("count", 1, 1, 1 << 20));
  gpus.multiprocessors = static_cast<int>(in.integer("multiprocessors", 1, 1, 1 << 20));
  gpus.architecture = static_cast<int>(in.integer("architecture", 10, 10, 1 << 20));
  for (const auto& [key, field] : {std::pair("memory_bytes", &gpus.memory_bytes),
                                   {"copy_bytes_per_s", &gpus.copy_bytes_per_s},
                                   {"upload_bytes_per_s", &gpus.upload_bytes_per_s},
                                   {"download_bytes_per_s", &gpus.download_bytes_per_s},
                                   {"issue_ns", &gpus.issue_ns}}) {
    *field = in.positive(key);
  }
  read_list(in, "peaks", gpus.peaks, [](JsonReader& entry) {
    return MeasuredGpus::Peak{word(entry, "dtype"), entry.positive("flops_per_s")};
  });
  read_list(in, "products", gpus.products, [](JsonReader& entry) {
    return MeasuredGpus::Product{entry.boolean("fp8", false),
                                 entry.positive("rows"),
                                 entry.positive("in"),
                                 entry.positive("out"),
                                 entry.positive("forward_ns"),
                                 entry.positive("backward_ns")};
  });
  read_list(in, "passes", gpus.passes, [](JsonReader& entry) {
    return MeasuredGpus::Pass{word(entry, "op"),
                              entry.boolean("backward", false),
                              entry.positive("bytes"),
                              entry.positive("ns")};
  });
  read_list(in, "collectives", gpus.collectives, [](JsonReader& entry) {
    return MeasuredGpus::Collective{
        word(entry, "kind"), entry.positive("bytes"), entry.positive("ns")};
  });
  in.finish();
  return gpus;
}

}  // namespace vitrine
