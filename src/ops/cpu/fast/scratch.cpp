// Per-thread scratch buffers.
#include "ops/cpu/fast/scratch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>

namespace vitrine::fast {
namespace {

struct Free {
  void operator()(float* p) const { std::free(p); }
};

struct Block {
  std::unique_ptr<float, Free> data;
  int64_t count = 0;
};

}  // namespace

float* scratch(Scratch which, int64_t count) {
  thread_local std::array<Block, static_cast<size_t>(Scratch::kCount)> blocks;
  Block& block = blocks[static_cast<size_t>(which)];
  if (block.count < count) {
    const int64_t rounded = std::max(count + count / 4, int64_t{1024}) / 16 * 16 + 16;
    block.data.reset();
    block.count = 0;
    block.data.reset(
        static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(rounded) * sizeof(float))));
    if (!block.data) throw std::bad_alloc();
    block.count = rounded;
  }
  return block.data.get();
}

}  // namespace vitrine::fast
