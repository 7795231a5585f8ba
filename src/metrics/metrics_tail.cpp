// Blocks from the end of the file until they hold a whole line.
#include "metrics/metrics_tail.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {

namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kBlock = 4096;

MetricsLine parsed(const std::string& line, const std::string& path) {
  const std::string where = path + ", last line";
  const Json json = parse_json(line, where);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
    throw ConfigError(where + ": expected an object with a whole number \"step\", got " + line);
  }
  MetricsLine out;
  for (const auto& [name, value] : json.items()) {
    const double number = value.is_number() ? value.get<double>() : kMissing;
    if (name == "step")
      out.step = value.get<int64_t>();
    else if (name == "time")
      out.time_s = number;
    else
      out.values.emplace_back(name, number);
  }
  return out;
}

}  // namespace

double MetricsLine::get(const std::string& name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  return kMissing;
}

std::optional<MetricsLine> last_metrics(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("cannot open " + path + ": " + std::strerror(errno));
  file.seekg(0, std::ios::end);
  const int64_t size = file.tellg();
  std::string tail;
  for (int64_t bytes = kBlock;; bytes *= 2) {
    const int64_t taken = std::min(bytes, size);
    tail.resize(static_cast<size_t>(taken));
    file.seekg(size - taken);
    if (!file.read(tail.data(), taken)) throw IoError("cannot read " + path);
    const size_t end = tail.rfind('\n');  // what follows is still being written
    if (end != std::string::npos) {
      const size_t before = end == 0 ? std::string::npos : tail.rfind('\n', end - 1);
      if (before != std::string::npos || taken == size) {
        const size_t begin = before == std::string::npos ? 0 : before + 1;
        return parsed(tail.substr(begin, end - begin), path);
      }
    } else if (taken == size) {
      return std::nullopt;
    }
  }
}

}  // namespace vitrine
