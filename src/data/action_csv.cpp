// A strict reader of comma-separated numbers.
#include "data/action_csv.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

}  // namespace

ActionTable ActionTable::read(const std::string& path) {
  const std::string text = read_text_file(path);
  ActionTable table;
  std::string_view rest = text;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t newline = rest.find('\n');
    std::string_view row = trimmed(rest.substr(0, newline));
    rest = newline == std::string_view::npos ? std::string_view() : rest.substr(newline + 1);
    if (row.empty() && trimmed(rest).empty()) break;
    const auto fail = [&](const std::string& why) {
      throw ConfigError(path + ", line " + std::to_string(line) + ": " + why);
    };
    std::vector<double> numbers;
    bool names = false;
    while (true) {
      const size_t comma = row.find(',');
      const std::string_view cell = trimmed(row.substr(0, comma));
      const std::optional<double> value = number_of(cell);
      names = names || (!value && line == 1);
      if (!value && !names) fail("expected a number, got \"" + std::string(cell) + "\"");
      numbers.push_back(value.value_or(0));
      if (comma == std::string_view::npos) break;
      row = row.substr(comma + 1);
    }
    const auto columns = static_cast<int64_t>(numbers.size());
    if (line > 1 && columns != table.columns) {
      fail(std::to_string(columns) + " columns, the rows before have " +
           std::to_string(table.columns));
    }
    table.columns = columns;
    if (names) continue;
    ++table.rows;
    for (const double value : numbers) {
      if (columns > 1 || value != std::floor(value) || value < 0 || value > 65535) {
        table.kind = FrameActions::kContinuous;
      }
      table.values.push_back(value);
    }
  }
  if (table.rows == 0) throw ConfigError(path + ": no rows of actions");
  return table;
}

std::string action_csv_of(const std::string& video) {
  return std::filesystem::path(video).replace_extension(".actions.csv").string();
}

}  // namespace vitrine
