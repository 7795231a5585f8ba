// Values of a DeepSpeed configuration by dotted path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json_fwd.h"

namespace vitrine {

// Absent, null, "auto" and wrongly typed values (which have their remarks already) are nullopt.
// Keeps a reference to `root`.
class DeepSpeedValues {
 public:
  explicit DeepSpeedValues(const Json& root) : root_(root) {}
  const Json* find(const std::string& path) const;
  std::optional<bool> boolean(const std::string& path) const;
  std::optional<double> number(const std::string& path) const;
  std::optional<int64_t> integer(const std::string& path) const;  // whole floats too
  std::optional<std::string> text(const std::string& path) const;

 private:
  const Json& root_;
};

}  // namespace vitrine
