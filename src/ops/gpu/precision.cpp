// The switches of precision and repeatability.
#include "ops/gpu/precision.h"

#include <atomic>

namespace vitrine::gpu {
namespace {

std::atomic<bool> use_tf32{false};
std::atomic<bool> be_deterministic{false};

}  // namespace

void set_tf32(bool on) { use_tf32 = on; }
bool tf32() { return use_tf32; }
void set_deterministic(bool on) { be_deterministic = on; }
bool deterministic() { return be_deterministic; }

}  // namespace vitrine::gpu
