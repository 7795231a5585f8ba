// Configuration JSON: nlohmann's value type, with files read and keys taken under one kind of
// error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace vitrine {

// Throws IoError when the file can't be read, ConfigError with line and column when it does not
// parse or holds a key twice. Comments are allowed.
Json read_json_file(const std::string& path);
Json parse_json(const std::string& text, const std::string& source);

// A rename onto a device, a pipe or a folder would replace it: throws IoError where `path` is one.
void refuse_special_file(const std::string& path);
// Writes to a temporary file beside `path` and renames it. Throws IoError.
void write_text_file(const std::string& path, const std::string& text);
std::string read_text_file(const std::string& path);

// One object of a configuration, read key by key: wrong types name the key, and finish() refuses
// keys that nobody asked for, with the nearest known one.
class JsonReader {
 public:
  // `where` is the path to this object as shown in messages, e.g. "zero_optimization".
  JsonReader(const Json& object, std::string where);

  bool has(const std::string& key) const;
  bool boolean(const std::string& key, bool fallback);
  // Integers also take whole floats such as 5e8, as DeepSpeed does.
  int64_t integer(const std::string& key, int64_t fallback);
  int64_t integer(const std::string& key, int64_t fallback, int64_t minimum, int64_t maximum);
  double number(const std::string& key, double fallback);
  // Finite and over 0; absent is an error too.
  double positive(const std::string& key);
  std::string text(const std::string& key, const std::string& fallback);
  std::string choice(const std::string& key,
                     const std::string& fallback,
                     const std::vector<std::string>& allowed);
  // A list of texts; `what` they are is for the message.
  std::vector<std::string> texts(const std::string& key,
                                 const std::string& what,
                                 const std::vector<std::string>& fallback);
  // The value itself (null when absent); marks the key as known.
  const Json& raw(const std::string& key);
  // Throws ConfigError when a key was never asked for.
  void finish() const;
  std::string path_of(const std::string& key) const;
  const std::vector<std::string>& known() const { return known_; }

 private:
  const Json* find(const std::string& key);
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace vitrine
