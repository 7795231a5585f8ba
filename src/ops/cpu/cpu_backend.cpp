// The CPU backend's table: the fast row of the best instruction set, the reference where there is
// none.
#include "ops/cpu/fast/levels.h"
#include "ops/op.h"

namespace vitrine {
namespace {

void add_fast_rows(Backend& backend) {
#ifdef VITRINE_X86_64_LEVELS
  if (__builtin_cpu_supports("x86-64-v4")) return fast::x86_64_v4::add_all(backend);
  if (__builtin_cpu_supports("x86-64-v3")) return fast::x86_64_v3::add_all(backend);
#endif
  fast::baseline::add_all(backend);
}

}  // namespace

Backend& cpu_backend() {
  static Backend instance = [] {
    Backend backend("cpu");
    for (const std::string& op : op_names()) {
      if (reference_backend().has(op)) backend.add(op, reference_backend().kernels(op));
    }
    add_fast_rows(backend);
    return backend;
  }();
  return instance;
}

}  // namespace vitrine
