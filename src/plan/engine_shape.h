// Shapes of models that the engine runs.
#pragma once

#include "core/json_fwd.h"
#include "models/vit.h"
#include "plan/model_shape.h"

namespace vitrine {

// Of a `model` section of a run file; `engine_section` is the section with every field given.
// Throws as build_model does.
ModelShape shape_of_engine(const Json& section);

// `stack` and the picture's fields of `model` from a picture encoder.
void set_picture_encoder(ModelShape& model, StackShape& stack, const VitConfig& encoder);

}  // namespace vitrine
