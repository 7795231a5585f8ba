// Reading of a profile or topology: fields of a Cluster over one that is there already.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "machines/cluster.h"

namespace vitrine {

// Sets what `fields` has. Keys are Cluster's, with "card" a name or an object, "links" "switch",
// "pairs" or "pcie", "efficiency" an object; "name", "aliases" and "base" are the caller's. Sources
// replace inherited ones that begin with the same word. `with_card` false (a topology): "card" and
// "efficiency" are unknown keys. Throws ConfigError naming the key, with the nearest known one.
void apply_profile(Cluster& cluster, const Json& fields, const std::string& where, bool with_card);

// Names as they are compared: small letters and digits alone.
std::string squeezed_name(const std::string& name);

}  // namespace vitrine
