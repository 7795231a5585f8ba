// Dotted overrides of a run file: "train.steps=50".
#include "config/run_config.h"
#include "core/error.h"
#include "core/json.h"

namespace vitrine {

void apply_overrides(Json& file, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError("--set " + text + ": expected key=value, as in train.steps=50");
    }
    const std::string path = text.substr(0, equals), value = text.substr(equals + 1);
    Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_discarded()) parsed = value;
    Json* at = &file;
    size_t begin = 0;
    while (true) {
      const size_t end = path.find('.', begin);
      const std::string key = path.substr(begin, end - begin);
      if (key.empty()) throw ConfigError("--set " + text + ": a key between dots is empty");
      if (!at->is_object()) {
        throw ConfigError("--set " + text + ": \"" + path.substr(0, begin == 0 ? 0 : begin - 1) +
                          "\" is " + at->type_name() + ", not an object {...}");
      }
      at = &(*at)[key];
      if (end == std::string::npos) break;
      if (at->is_null()) *at = Json::object();
      begin = end + 1;
    }
    *at = std::move(parsed);
  }
}

}  // namespace vitrine
