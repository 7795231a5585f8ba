// What an event becomes: its times as integers, its texts as numbers, its kind by its words.
#include "readers/kineto_events.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "readers/decimal.h"
#include "readers/kineto_event.h"

namespace vitrine {
namespace {

constexpr std::string_view kStepName = "ProfilerStep#";
// Ends must fit as well: sums of times are formed everywhere.
constexpr int64_t kFarthest = std::numeric_limits<int64_t>::max() / 2;

int64_t number_or(std::string_view text, int64_t otherwise) {
  return text.empty() || text == "null" ? otherwise : first_integer(text);
}

int64_t amount_or(std::string_view text, int64_t otherwise) {
  return text.empty() || text == "null" ? otherwise : first_amount(text);
}

int32_t small_number(std::string_view text) {
  const int64_t value = number_or(text, -1);
  return value < 0 || value > std::numeric_limits<int32_t>::max() ? -1
                                                                  : static_cast<int32_t>(value);
}

}  // namespace

void KinetoDamage::add(const KinetoDamage& other) {
  lost.add(other.lost), repaired.add(other.repaired), controls.add(other.controls);
  escapes.add(other.escapes), utf8.add(other.utf8), no_events.add(other.no_events);
  negative.add(other.negative), never_run.add(other.never_run), odd_groups.add(other.odd_groups);
}

void KinetoEvents::clear() {
  spans.clear(), arguments.clear(), own.clear(), counters.clear(), labels.clear();
  allocations.clear(), allocation_pids.clear(), strings.clear(), lanes.clear();
  damage = {};
  list_end = unfinished = kNone;
}

uint32_t KinetoEventParser::number(std::string_view raw, uint64_t at) {
  const uint32_t out = strings_.number(raw);
  if (const uint8_t mended = strings_.mended(out); mended != 0) {
    if (mended & kBadUtf8) out_->damage.utf8.add(at);
    if (mended & kRawControl) out_->damage.controls.add(at);
    if (mended & kBadEscape) out_->damage.escapes.add(at);
  }
  return out;
}

const KinetoEventParser::NameFacts& KinetoEventParser::facts_of(uint32_t name,
                                                                std::string_view raw) {
  if (facts_.size() <= name) facts_.resize(name + 1 + name / 2);
  NameFacts& facts = facts_[name];
  if (facts.known) return facts;
  facts.known = true;
  facts.kernel = is_communication_kernel(raw) ? collective_kind(collective_from_kernel(raw))
                                              : SpanKind::kKernel;
  facts.data = is_data_loading(raw);
  facts.announces = raw == "record_param_comms";
  facts.step = raw.starts_with(kStepName) ? small_number(raw.substr(kStepName.size())) : -1;
  facts.is_step = raw.starts_with(kStepName);
  return facts;
}

int32_t KinetoEventParser::lane_of(const KinetoEvent& event, KinetoCategory category) {
  for (size_t i = 0; i < std::size(recent_lanes_); ++i) {
    const int32_t lane = recent_lanes_[i];
    if (lane < 0) break;
    const KinetoEvents::Lane& known = lanes_[static_cast<size_t>(lane)];
    if (known.tid != event.tid || known.pid != event.pid) continue;
    if (i > 0) std::swap(recent_lanes_[i], recent_lanes_[0]);
    return lane;
  }
  std::string key(event.pid);
  key += '\n';
  key += event.tid;
  const auto [it, added] = lane_numbers_.try_emplace(key, static_cast<int32_t>(lanes_.size()));
  if (added) {
    lanes_.push_back({std::string(event.pid), std::string(event.tid), -1});
    if (on_device(category)) {
      lanes_.back().device = number_or(event.device, first_integer(event.pid));
    }
  }
  for (size_t i = std::size(recent_lanes_) - 1; i > 0; --i) recent_lanes_[i] = recent_lanes_[i - 1];
  return recent_lanes_[0] = it->second;
}

void KinetoEventParser::take(const KinetoEvent& event, uint64_t at) {
  if (event.passed_over || !wanted(event)) return;
  if (event.phase == 0) return out_->damage.no_events.add(at);
  if (event.phase == 'M') {
    using Of = KinetoEvents::Label::Of;
    const Of of = event.name == "process_labels" ? Of::kProcessKind
                  : event.name == "process_name" ? Of::kProcess
                                                 : Of::kThread;
    out_->labels.push_back({number(event.pid, at),
                            number(event.tid, at),
                            number(of == Of::kProcessKind ? event.labels : event.title, at),
                            of});
    return;
  }
  int64_t start = 0, duration = 0;
  if (!event.named || !microseconds_to_ns(event.ts, start) || start > kFarthest ||
      start < -kFarthest ||
      (!event.duration.empty() && !microseconds_to_ns(event.duration, duration))) {
    out_->damage.no_events.add(at);
  } else if (event.phase == 'X') {
    take_span(event, start, duration, at);
  } else if (event.phase == 'C') {
    for (const auto& [series, value] : series_) {
      double number_value = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number_value);
      if (parsed.ec != std::errc{} || !std::isfinite(number_value)) continue;
      out_->counters.push_back(
          {start, number(event.pid, at), number(event.name, at), number(series, at), number_value});
    }
  } else {
    const int64_t type = number_or(event.device_type, -1);
    out_->allocation_pids.push_back(number(event.pid, at));
    out_->allocations.push_back(
        {start,
         static_cast<uint64_t>(number_or(event.address, 0)),
         amount_or(event.bytes, 0),
         amount_or(event.allocated, -1),
         amount_or(event.reserved, -1),
         type == 0 ? -1 : static_cast<int32_t>(number_or(event.device, type < 0 ? -1 : 0))});
  }
}

void KinetoEventParser::take_span(const KinetoEvent& event,
                                  int64_t start,
                                  int64_t duration,
                                  uint64_t at) {
  const KinetoCategory category = kineto_category(event.category);
  if (category == KinetoCategory::kIgnored) return;
  const bool device = on_device(category);
  if (device && start == 0 && duration == 0) return out_->damage.never_run.add(at);
  if (duration < 0) {
    out_->damage.negative.add(at);
    duration = 0;
  }
  if (duration > kFarthest) return out_->damage.no_events.add(at);
  KinetoEvents::Span span{};
  span.start_ns = start, span.duration_ns = duration;
  span.correlation = number_or(event.correlation, 0);
  span.bytes = category == KinetoCategory::kCopy ? amount_or(event.bytes, 0) : 0;
  span.name = number(event.name, at);
  span.lane = lane_of(event, category);
  span.collective = span.step = -1;
  span.category = category;
  const NameFacts facts = facts_of(span.name, event.name);
  switch (category) {
    case KinetoCategory::kKernel:
      span.kind = event.collective.empty()
                      ? facts.kernel
                      : collective_kind(collective_from_c10d(event.collective));
      break;
    case KinetoCategory::kCopy:
      span.kind = SpanKind::kCopy;
      break;
    case KinetoCategory::kDeviceSync:
      span.kind = SpanKind::kSync;
      break;
    case KinetoCategory::kDeviceAnnotation:
      span.kind = SpanKind::kRegion;
      break;
    case KinetoCategory::kRuntime:
      span.kind = SpanKind::kRuntime;
      break;
    case KinetoCategory::kOperator:
      span.kind = facts.data ? SpanKind::kData : SpanKind::kOperation;
      if (!event.shapes.empty()) span.shapes = number(event.shapes, at);
      break;
    case KinetoCategory::kAnnotation:
      span.kind = facts.data ? SpanKind::kData : SpanKind::kRegion;
      break;
    default:
      span.kind = SpanKind::kHost;
  }
  if (facts.is_step &&
      (category == KinetoCategory::kAnnotation || category == KinetoCategory::kOperator)) {
    span.kind = SpanKind::kStep;
    span.step = facts.step;
  }
  if (!event.collective.empty()) {
    span.announces = facts.announces && event.collective != "wait";
    const int64_t group_size = number_or(event.group_size, -1);
    if (group_size < 1 && !event.group_size.empty()) out_->damage.odd_groups.add(at);
    span.collective = static_cast<int32_t>(out_->arguments.size());
    out_->arguments.push_back({number(event.collective, at),
                               number(event.dtype, at),
                               number(event.group, at),
                               number(event.description, at),
                               number(event.ranks, at),
                               amount_or(event.in_elements, 0),
                               amount_or(event.out_elements, 0),
                               group_size,
                               number_or(event.sequence, -1),
                               number_or(event.peer, -1),
                               number_or(event.rank, -1),
                               amount_or(event.sent_bytes, -1)});
  }
  if (!event.kind.empty()) {
    out_->own.push_back({static_cast<uint32_t>(out_->spans.size()),
                         number(event.kind, at),
                         number(event.label, at),
                         number(event.block, at),
                         small_number(event.step),
                         small_number(event.micro_batch)});
  }
  out_->spans.push_back(span);
}

}  // namespace vitrine
