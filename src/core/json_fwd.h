// The name of the configuration JSON type, for headers that only pass it on.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace vitrine {

using Json = nlohmann::ordered_json;

}  // namespace vitrine
