// Reading of configuration JSON with errors that name the place.
#include "core/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

std::string read_text_file(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    throw IoError("cannot read " + path + ": it is a folder; give the name of a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError("cannot open " + path + ": " + std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) throw IoError("cannot read " + path + ": " + std::strerror(errno));
  return std::move(text).str();
}

void refuse_special_file(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw IoError("cannot write " + path + ": it is " +
                (S_ISDIR(status.st_mode) ? "a folder" : "a device or a pipe") +
                ", not a file; give the name of a file");
}

void write_text_file(const std::string& path, const std::string& text) {
  refuse_special_file(path);
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) throw IoError("cannot create " + temporary + ": " + std::strerror(errno));
  size_t done = 0;
  int error = 0;
  while (done < text.size() && error == 0) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n > 0) done += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR) error = errno;
  }
  if (close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    throw IoError("cannot write " + path + ": " + std::strerror(error));
  }
}

Json parse_json(const std::string& text, const std::string& source) {
  std::vector<std::set<std::string>> open_objects;
  const auto callback = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key &&
        !open_objects.back().insert(value.get<std::string>()).second) {
      throw ConfigError(source + ": the key \"" + value.get<std::string>() +
                        "\" appears twice in one object; keep one of them");
    }
    return true;
  };
  try {
    return Json::parse(text, callback, true, true);
  } catch (const Json::parse_error& error) {
    const size_t at = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
    const size_t newline = text.rfind('\n', at == 0 ? 0 : at - 1);
    const size_t column = newline == std::string::npos || at == 0 ? at + 1 : at - newline;
    throw ConfigError(source + ": not valid JSON at line " + std::to_string(line) + ", column " +
                      std::to_string(column) + ": " + error.what());
  } catch (const Json::exception& error) {  // a number that no double holds
    throw ConfigError(source + ": not valid JSON: " + error.what());
  }
}

Json read_json_file(const std::string& path) { return parse_json(read_text_file(path), path); }

JsonReader::JsonReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) {
    throw ConfigError((where_.empty() ? "the configuration" : where_) +
                      ": expected an object {...}, got " + object_.type_name());
  }
}

std::string JsonReader::path_of(const std::string& key) const {
  return where_.empty() ? key : where_ + "." + key;
}

const Json* JsonReader::find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

bool JsonReader::has(const std::string& key) const { return object_.contains(key); }

bool JsonReader::boolean(const std::string& key, bool fallback) {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) {
    throw ConfigError(path_of(key) + ": expected true or false, got " + value->dump());
  }
  return value->get<bool>();
}

int64_t JsonReader::integer(const std::string& key, int64_t fallback) {
  const Json* value = find(key);
  if (!value) return fallback;
  if (value->is_number_integer()) return value->get<int64_t>();
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (number == std::floor(number) && std::fabs(number) < 9e18)
      return static_cast<int64_t>(number);
  }
  throw ConfigError(path_of(key) + ": expected a whole number, got " + value->dump());
}

int64_t JsonReader::integer(const std::string& key,
                            int64_t fallback,
                            int64_t minimum,
                            int64_t maximum) {
  const int64_t value = integer(key, fallback);
  if (value < minimum || value > maximum) {
    throw ConfigError(path_of(key) + ": expected a whole number from " + std::to_string(minimum) +
                      " to " + std::to_string(maximum) + ", got " + std::to_string(value));
  }
  return value;
}

double JsonReader::number(const std::string& key, double fallback) {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_number())
    throw ConfigError(path_of(key) + ": expected a number, got " + value->dump());
  return value->get<double>();
}

double JsonReader::positive(const std::string& key) {
  const double value = number(key, 0);
  if (std::isfinite(value) && value > 0) return value;
  throw ConfigError(path_of(key) + format(": expected a number over 0, got %g", value));
}

std::string JsonReader::text(const std::string& key, const std::string& fallback) {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_string())
    throw ConfigError(path_of(key) + ": expected a text, got " + value->dump());
  return value->get<std::string>();
}

std::string JsonReader::choice(const std::string& key,
                               const std::string& fallback,
                               const std::vector<std::string>& allowed) {
  const std::string value = text(key, fallback);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    const std::string near = nearest_name(value, allowed);
    throw ConfigError(path_of(key) + ": expected one of " + join(allowed, ", ") + ", got \"" +
                      value + "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  return value;
}

std::vector<std::string> JsonReader::texts(const std::string& key,
                                           const std::string& what,
                                           const std::vector<std::string>& fallback) {
  const Json* list = find(key);
  if (!list || list->is_null()) return fallback;
  const bool good = list->is_array() && std::all_of(list->begin(), list->end(), [](const Json& e) {
                      return e.is_string();
                    });
  if (!good) {
    throw ConfigError(path_of(key) + ": expected a list of " + what + ", got " + list->dump());
  }
  return list->get<std::vector<std::string>>();
}

const Json& JsonReader::raw(const std::string& key) {
  static const Json null;
  const Json* value = find(key);
  return value ? *value : null;
}

void JsonReader::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = nearest_name(key, known_);
    throw ConfigError("unknown key \"" + path_of(key) + "\"" +
                      (near.empty() ? "; known here: " + join(known_, ", ")
                                    : "; did you mean \"" + near + "\"?"));
  }
}

}  // namespace vitrine
