// Any bytes as an Nsight export: timelines of one length in every column, or an IoError.
#include "core/error.h"
#include "fuzz/fuzz_file.h"
#include "readers/nsys_sqlite.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const vitrine::FuzzFile file(data, size);
  try {
    for (const auto& rank : vitrine::read_nsys(file.path())) {
      const auto& spans = rank.spans;
      if (spans.duration_ns.size() != spans.size() || spans.lane.size() != spans.size() ||
          spans.shapes.size() != spans.size() || spans.collective.size() != spans.size()) {
        __builtin_trap();
      }
    }
  } catch (const vitrine::IoError&) {
  }
  return 0;
}
