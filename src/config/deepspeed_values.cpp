// Values by dotted path.
#include "config/deepspeed_values.h"

#include <cmath>

#include "core/json.h"

namespace vitrine {

const Json* DeepSpeedValues::find(const std::string& path) const {
  const Json* at = &root_;
  size_t begin = 0;
  while (true) {
    const size_t end = path.find('.', begin);
    if (!at->is_object()) return nullptr;
    const auto it = at->find(path.substr(begin, end - begin));
    if (it == at->end()) return nullptr;
    at = &*it;
    if (end == std::string::npos) return at;
    begin = end + 1;
  }
}

std::optional<bool> DeepSpeedValues::boolean(const std::string& path) const {
  const Json* value = find(path);
  return value && value->is_boolean() ? std::optional(value->get<bool>()) : std::nullopt;
}

std::optional<double> DeepSpeedValues::number(const std::string& path) const {
  const Json* value = find(path);
  return value && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::optional<int64_t> DeepSpeedValues::integer(const std::string& path) const {
  const Json* value = find(path);
  if (value && value->is_number_integer()) return value->get<int64_t>();
  const auto real = number(path);
  if (!real || *real != std::floor(*real) || std::fabs(*real) > 9e18) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::optional<std::string> DeepSpeedValues::text(const std::string& path) const {
  const Json* value = find(path);
  if (!value || !value->is_string() || value->get<std::string>() == "auto") return std::nullopt;
  return value->get<std::string>();
}

}  // namespace vitrine
