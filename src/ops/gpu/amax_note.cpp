// Notes of largest magnitudes: one place a stream on the device, one note a thread.
#include <map>
#include <mutex>
#include <utility>

#include "gpu/issued.h"
#include "gpu/runtime.h"
#include "ops/gpu/fp8.h"

namespace vitrine::gpu {
namespace {

struct Note {
  const void* data = nullptr;
  int64_t count = 0;
  const uint32_t* amax_bits = nullptr;
  uint64_t asked_for = 0;
};
thread_local Note note;

// What one operation leaves is read by the next in the stream, before another writes it.
uint32_t* place_of(cudaStream_t stream) {
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<int, cudaStream_t>, uint32_t*>;
  const std::lock_guard lock(mutex);
  uint32_t*& place = (*all)[{limits().device, stream}];
  if (!place) VITRINE_GPU_CHECK(cudaMalloc(reinterpret_cast<void**>(&place), sizeof(uint32_t)));
  return place;
}

}  // namespace

uint32_t* begin_amax_note() {
  note = {};
  uint32_t* place = place_of(stream());
  VITRINE_GPU_CHECK(cudaMemsetAsync(place, 0, sizeof(uint32_t), stream()));
  return place;
}

void end_amax_note(const void* data, int64_t count) {
  const uint32_t* place = place_of(stream());
  note = {data, count, place, streams_asked_for()};
}

const uint32_t* noted_amax(const void* data, int64_t count) {
  const bool holds =
      note.data == data && note.count == count && note.asked_for == streams_asked_for();
  return holds ? note.amax_bits : nullptr;
}

}  // namespace vitrine::gpu
