// Lines of JSON to columns.
#include "metrics/metrics_reader.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {

namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// Calls visit(line, line number) for every line that ends with a newline.
template <typename Visit>
void for_each_line(const std::string& text, Visit&& visit) {
  size_t begin = 0, number = 1;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
    visit(text.substr(begin, end - begin), number);
  }
}

}  // namespace

const std::vector<double>* MetricsTable::find(const std::string& name) const {
  for (const auto& [known, values] : columns) {
    if (known == name) return &values;
  }
  return nullptr;
}

MetricsTable read_metrics(const std::string& path) {
  MetricsTable table;
  for_each_line(read_text_file(path), [&](const std::string& line, size_t number) {
    if (line.empty()) return;
    const std::string where = path + ", line " + std::to_string(number);
    const Json json = parse_json(line, where);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
      throw ConfigError(where + ": expected an object with a whole number \"step\", got " + line);
    }
    table.steps.push_back(json["step"].get<int64_t>());
    for (const auto& [name, value] : json.items()) {
      if (name == "step") continue;
      if (!value.is_number() && !value.is_null()) {
        throw ConfigError(where + ": \"" + name + "\": expected a number or null, got " +
                          value.dump());
      }
      std::vector<double>* column = nullptr;
      for (auto& [known, values] : table.columns) {
        if (known == name) column = &values;
      }
      if (column == nullptr)
        column = &table.columns.emplace_back(name, std::vector<double>()).second;
      column->resize(table.steps.size() - 1, kMissing);
      column->push_back(value.is_null() ? kMissing : value.get<double>());
    }
  });
  for (auto& [name, values] : table.columns) values.resize(table.steps.size(), kMissing);
  return table;
}

std::string lines_up_to_step(const std::string& text, int64_t step) {
  std::string kept;
  bool stopped = false;
  for_each_line(text, [&](const std::string& line, size_t number) {
    if (stopped || line.empty()) return;
    const Json json = parse_json(line, "metrics.jsonl, line " + std::to_string(number));
    stopped = json.value("step", std::numeric_limits<int64_t>::max()) > step;
    if (!stopped) kept += line + "\n";
  });
  return kept;
}

}  // namespace vitrine
