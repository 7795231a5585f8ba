// Assertion failure: programmer errors end the process with the place.
#include "core/error.h"

#include <cstdio>
#include <cstdlib>

namespace vitrine {

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace vitrine
