// Interned names and the words for span kinds.
#include "timeline/timeline.h"

#include <algorithm>
#include <functional>

#include "core/error.h"

namespace vitrine {

namespace {
constexpr std::array<const char*, 19> kNames = {"forward",
                                                "recompute",
                                                "backward",
                                                "optimizer",
                                                "operation",
                                                "kernel",
                                                "gather",
                                                "reduce",
                                                "collective",
                                                "send",
                                                "receive",
                                                "copy",
                                                "disk",
                                                "data",
                                                "host",
                                                "runtime",
                                                "sync",
                                                "region",
                                                "step"};
constexpr StringId kFree = ~StringId{0};
static_assert(kNames.size() == static_cast<size_t>(SpanKind::kStep) + 1);
}  // namespace

StringId StringPool::intern(std::string_view text) {
  if (strings_.size() * 2 >= slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(text)&mask;
  while (slots_[slot] != kFree) {
    if (strings_[slots_[slot]] == text) return slots_[slot];
    slot = (slot + 1) & mask;
  }
  slots_[slot] = static_cast<StringId>(strings_.size());
  strings_.emplace_back(text);
  return slots_[slot];
}

void StringPool::grow() {
  slots_.assign(std::max<size_t>(16, slots_.size() * 2), kFree);
  const size_t mask = slots_.size() - 1;
  for (size_t id = 0; id < strings_.size(); ++id) {
    size_t slot = std::hash<std::string_view>{}(strings_[id]) & mask;
    while (slots_[slot] != kFree) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<StringId>(id);
  }
}

const char* span_kind_name(SpanKind kind) { return kNames[static_cast<size_t>(kind)]; }

SpanKind span_kind_from_name(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<SpanKind>(i);
  }
  throw ConfigError("\"" + name + "\" is no kind of span");
}

bool is_communication(SpanKind kind) {
  return kind == SpanKind::kGather || kind == SpanKind::kReduce || kind == SpanKind::kCollective ||
         kind == SpanKind::kSend || kind == SpanKind::kReceive;
}

void Spans::reserve(size_t count) {
  start_ns.reserve(count), duration_ns.reserve(count), name.reserve(count), kind.reserve(count);
  lane.reserve(count), step.reserve(count), micro_batch.reserve(count), block.reserve(count);
  collective.reserve(count), correlation.reserve(count), bytes.reserve(count);
  shapes.reserve(count);
}

}  // namespace vitrine
