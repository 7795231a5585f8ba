// The rows of one instruction set, gathered for the choice at run time.
#include "ops/cpu/fast/gemm.h"
#include "ops/cpu/fast/levels.h"
#include "ops/cpu/fast/rows.h"

namespace vitrine::fast::VITRINE_ISA {

void add_all(Backend& backend) {
  set_conversions({widen, narrow});
  add_matmul(backend);
  add_norm(backend);
  add_attention(backend);
  add_pointwise(backend);
  add_layout(backend);
}

}  // namespace vitrine::fast::VITRINE_ISA
