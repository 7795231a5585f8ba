// The CPU backend's table: the fast row where there is one, the reference elsewhere.
#include "ops/op.h"

namespace vitrine {

Backend& cpu_backend() {
  static Backend instance = [] {
    Backend backend("cpu");
    for (const std::string& op : op_names()) {
      if (reference_backend().has(op)) backend.add(op, reference_backend().kernels(op));
    }
    return backend;
  }();
  return instance;
}

}  // namespace vitrine
