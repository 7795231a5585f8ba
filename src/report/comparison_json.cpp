// A comparison as JSON: one list of rows.
#include <string_view>

#include "report/analysis_json.h"

namespace vitrine {

Json comparison_json(const Comparison& c) {
  Json rows = Json::array();
  const auto add = [&](const char* section, const std::vector<ComparedRow>& from) {
    const bool of_memory = std::string_view(section) == "memory";
    const char* unit = of_memory ? "bytes" : "ns";
    for (const ComparedRow& row : from) {
      Json json = {{"section", section},
                   {"name", row.name},
                   {"unit", unit},
                   {"a", row.in_a ? Json(row.a) : Json(nullptr)},
                   {"b", row.in_b ? Json(row.b) : Json(nullptr)},
                   {"difference", c.comparable || of_memory ? Json(row.difference) : Json(nullptr)},
                   {"share", row.share}};
      if (row.count_a > 0 || row.count_b > 0) {
        json["count_a"] = row.count_a;
        json["count_b"] = row.count_b;
      }
      rows.push_back(std::move(json));
    }
  };
  add("step", {c.step});
  add("part", c.parts);
  add("phase", c.phases);
  add("idle", c.idle);
  add("host", c.host);
  add("operation", c.operations);
  add("host_operation", c.host_operations);
  add("kernel", c.kernels);
  add("collective", c.collectives);
  add("memory", c.memory);
  return {{"format", "vitrine comparison"},
          {"version", 1},
          {"a", {{"name", c.name_a}, {"ranks", c.ranks_a}}},
          {"b", {{"name", c.name_b}, {"ranks", c.ranks_b}}},
          {"per_step", c.per_step},
          {"summary", c.summary},
          {"rows", std::move(rows)},
          {"notes", c.notes}};
}

}  // namespace vitrine
