// The instruction sets that the fast row is compiled for; each is a copy of the same sources in its
// namespace.
#pragma once

#include "ops/op.h"

namespace vitrine::fast {

namespace baseline {
void add_all(Backend& backend);
}
namespace x86_64_v3 {
void add_all(Backend& backend);
}
namespace x86_64_v4 {
void add_all(Backend& backend);
}

}  // namespace vitrine::fast
