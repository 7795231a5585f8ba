// Any bytes as an allocator snapshot: facts that add up, or an IoError; never a crash or a hang.
#include "analysis/memory_facts.h"
#include "core/error.h"
#include "fuzz/fuzz_file.h"
#include "readers/memory_snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const vitrine::FuzzFile file(data, size);
  try {
    const auto facts = vitrine::measure_memory(vitrine::read_memory_snapshot(file.path()));
    if (facts.curve.size() > vitrine::MemoryFacts::kMostPoints) __builtin_trap();
  } catch (const vitrine::IoError&) {
  }
  return 0;
}
