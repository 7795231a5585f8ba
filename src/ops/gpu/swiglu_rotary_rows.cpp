// The rows of swiglu and rotary.
#include "ops/gpu/pointwise.h"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {

void add_swiglu_rotary_rows(Backend& backend) {
  backend.add("swiglu", swiglu_row());
  backend.add("rotary", rotary_row());
}

}  // namespace vitrine::gpu
