// Interned names and the words for span kinds.
#include "timeline/timeline.h"

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
static_assert(kNames.size() == static_cast<size_t>(SpanKind::kStep) + 1);
}  // namespace

StringId StringPool::intern(const std::string& text) {
  const auto [it, added] = ids_.try_emplace(text, static_cast<StringId>(strings_.size()));
  if (added) strings_.push_back(text);
  return it->second;
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
