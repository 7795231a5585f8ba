// Any bytes as a Chrome trace: a timeline or an IoError, never a crash, also where ranks are taken
// apart; and cutting the text into chunks elsewhere changes nothing of what is read from sound
// text.
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "readers/kineto.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t spans[2] = {0, 0};
  bool warned = false;
  for (const size_t chunk_bytes : {size_t{1} << 16, size_t{48}}) {
    vitrine::KinetoOptions options;
    options.threads = 1;
    options.chunk_bytes = chunk_bytes;
    options.python_functions = true;
    try {
      const auto timeline = vitrine::read_kineto_text(text, "fuzz.json", options);
      spans[chunk_bytes == 48] = timeline.spans.size();
      warned |= !timeline.warnings.empty();
    } catch (const vitrine::IoError&) {
      warned = true;
    }
  }
  try {
    vitrine::KinetoOptions options;
    options.threads = 1;
    options.chunk_bytes = size_t{1} << 16;
    for (const auto& rank : vitrine::read_kineto_ranks_text(text, "fuzz.json", options)) {
      const auto& columns = rank.spans;
      if (columns.lane.size() != columns.size() || columns.shapes.size() != columns.size())
        __builtin_trap();
    }
  } catch (const vitrine::IoError&) {
  }
  if (!warned && spans[0] != spans[1]) __builtin_trap();
  return 0;
}
