// Starting values of parameters: counter-based, so that every rank can make any range alone.
#include <algorithm>

#include "core/philox.h"
#include "nn/model.h"

namespace vitrine {

void initial_values(const Init& init,
                    uint64_t seed,
                    const std::string& full_name,
                    int64_t begin,
                    int64_t count,
                    float* out) {
  const Philox random(seed, stream_of(full_name));
  switch (init.kind) {
    case Init::Kind::kZeros:
      std::fill(out, out + count, 0.0f);
      return;
    case Init::Kind::kConstant:
      std::fill(out, out + count, static_cast<float>(init.value));
      return;
    case Init::Kind::kNormal:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(init.value * random.normal(static_cast<uint64_t>(begin + i)));
      }
      return;
    case Init::Kind::kUniform:
      for (int64_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(init.value *
                                    (2 * random.uniform(static_cast<uint64_t>(begin + i)) - 1));
      }
      return;
  }
}

}  // namespace vitrine
