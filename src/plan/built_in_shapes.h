// Shapes of published models by name.
#pragma once

#include <optional>
#include <string>

#include "plan/model_shape.h"

namespace vitrine {

// The model of that name, whatever its capitals; nothing for unknown ones.
std::optional<ModelShape> built_in_shape(const std::string& name);

}  // namespace vitrine
