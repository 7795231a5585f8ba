// Columns of variable-length integers, one track after the other, deflated.
#include "report/timeline_blob.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/error.h"
#include "core/json.h"
#include "report/free_track.h"
#include "report/image.h"

namespace vitrine {

namespace {

constexpr size_t kSpansOfPage = 3000000;
constexpr size_t kBytesOfPage = size_t{20} << 20;
constexpr int kDeflateLevel = 4;  // a third of level 6's time for some percent more bytes

class Column {
 public:
  void add(uint64_t value) {
    while (value >= 0x80) {
      bytes_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    bytes_ += static_cast<char>(value);
  }
  void add_signed(int64_t value) {
    add(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  // The difference to the value before it.
  void add_delta(int64_t value) {
    add_signed(value - before_);
    before_ = value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  int64_t before_ = 0;
};

bool may_go(SpanKind kind) {
  return kind == SpanKind::kOperation || kind == SpanKind::kRuntime || kind == SpanKind::kHost ||
         kind == SpanKind::kSync;
}

// The duration under which spans must go for `count` to go (all of equal duration stay or go).
int64_t threshold(std::vector<int64_t> durations, size_t count) {
  if (count == 0 || durations.empty()) return 0;
  if (count >= durations.size()) return *std::max_element(durations.begin(), durations.end()) + 1;
  const auto at = durations.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(durations.begin(), at, durations.end());
  return *at + 1;
}

struct Thinning {
  int64_t host_under_ns = 0, device_under_ns = 0;

  Thinning(const RankTimeline& timeline, size_t most) {
    const Spans& spans = timeline.spans;
    if (spans.size() <= most) return;
    std::vector<int64_t> host, device;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (on_device(timeline, i)) {
        device.push_back(spans.duration_ns[i]);
      } else if (may_go(spans.kind[i])) {
        host.push_back(spans.duration_ns[i]);
      }
    }
    const size_t excess = spans.size() - most;
    const size_t of_host = std::min(excess, host.size());
    host_under_ns = threshold(std::move(host), of_host);
    device_under_ns = threshold(std::move(device), excess - of_host);
  }
  static bool on_device(const RankTimeline& timeline, size_t i) {
    return timeline.lanes[static_cast<size_t>(timeline.spans.lane[i])].device;
  }
  bool keeps(const RankTimeline& timeline, size_t i) const {
    const int64_t duration = timeline.spans.duration_ns[i];
    if (on_device(timeline, i)) return duration >= device_under_ns;
    return duration >= host_under_ns || !may_go(timeline.spans.kind[i]);
  }
};

// Spans of a lane in tracks: within one track none overlaps the next, an inner span is in a later
// track than the one around it. The page finds what is visible by bisection.
using Tracks = std::vector<std::vector<uint32_t>>;

bool is_annotation(SpanKind kind) { return kind == SpanKind::kRegion || kind == SpanKind::kStep; }

std::vector<Tracks> tracks_of(const RankTimeline& timeline, const Thinning& thinning) {
  const Spans& spans = timeline.spans;
  // What the user named on a device lane lies behind its work, not around it: its own second half.
  const size_t lanes = timeline.lanes.size();
  std::vector<Tracks> out(2 * lanes);
  std::vector<FreeTrack> ends(2 * lanes);
  for (size_t i = 0; i < spans.size(); ++i) {
    if (!thinning.keeps(timeline, i)) continue;
    auto lane = static_cast<size_t>(spans.lane[i]);
    if (timeline.lanes[lane].device && is_annotation(spans.kind[i])) lane += lanes;
    const int64_t start = spans.start_ns[i];
    const size_t track = ends[lane].take(start, start + std::max<int64_t>(0, spans.duration_ns[i]));
    if (track == out[lane].size()) out[lane].emplace_back();
    out[lane][track].push_back(static_cast<uint32_t>(i));
  }
  for (size_t lane = 0; lane < lanes; ++lane) {
    for (auto& track : out[lanes + lane]) out[lane].push_back(std::move(track));
  }
  out.resize(lanes);
  return out;
}

// Strings that are used, renumbered.
class Strings {
 public:
  explicit Strings(const StringPool& pool) : pool_(pool), ids_(pool.size(), -1) { id(kNoString); }
  int32_t id(StringId from) {
    if (ids_[from] < 0) {
      ids_[from] = static_cast<int32_t>(list_.size());
      list_.push_back(pool_[from]);
    }
    return ids_[from];
  }
  Json& list() { return list_; }

 private:
  const StringPool& pool_;
  std::vector<int32_t> ids_;
  Json list_ = Json::array();
};

// What many spans have in common: name, kind, block, shapes.
class Classes {
 public:
  Classes(const Spans& spans, Strings& strings) : spans_(spans), strings_(strings) {}
  uint64_t id(size_t i) {
    const Key key{spans_.name[i], spans_.block[i], spans_.shapes[i], spans_.kind[i]};
    const auto [it, fresh] = ids_.try_emplace(key, ids_.size());
    if (fresh) {
      list_.push_back({strings_.id(key.name),
                       static_cast<int>(key.kind),
                       strings_.id(key.block),
                       strings_.id(key.shapes)});
    }
    return it->second;
  }
  Json& list() { return list_; }

 private:
  struct Key {
    StringId name, block, shapes;
    SpanKind kind;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t mixed = key.name * 0x9e3779b97f4a7c15ull;
      mixed = (mixed ^ key.block) * 0xbf58476d1ce4e5b9ull;
      mixed = (mixed ^ key.shapes) * 0x94d049bb133111ebull;
      return static_cast<size_t>(mixed ^ mixed >> 29) + static_cast<size_t>(key.kind);
    }
  };
  const Spans& spans_;
  Strings& strings_;
  std::unordered_map<Key, uint64_t, Hash> ids_;
  Json list_ = Json::array();
};

// From correlation to the place of the host span that launched, in the order of the blob.
class Launches {
 public:
  Launches(const RankTimeline& timeline, const std::vector<Tracks>& lanes) {
    uint32_t place = 0;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      for (const auto& track : lanes[lane]) {
        for (const uint32_t i : track) {
          const int64_t correlation = timeline.spans.correlation[i];
          if (!timeline.lanes[lane].device && correlation != 0) places_[correlation] = place;
          ++place;
        }
      }
    }
  }
  int64_t of(int64_t correlation) const {
    if (correlation == 0) return -1;
    const auto it = places_.find(correlation);
    return it == places_.end() ? -1 : static_cast<int64_t>(it->second);
  }

 private:
  std::unordered_map<int64_t, uint32_t> places_;
};

Json collectives_json(const RankTimeline& timeline, Strings& strings, Json& groups) {
  std::unordered_map<std::string, size_t> group_ids;
  Json out = Json::array();
  for (const Collective& c : timeline.collectives) {
    Json group = {{"name", timeline.strings[c.group]}, {"ranks", c.ranks}};
    const auto [it, fresh] = group_ids.try_emplace(
        group.dump(-1, ' ', false, Json::error_handler_t::replace), groups.size());
    if (fresh) groups.push_back(std::move(group));
    out.push_back({strings.id(c.name),
                   it->second,
                   c.sequence,
                   c.in_elements,
                   c.out_elements,
                   c.sent_bytes,
                   strings.id(c.dtype),
                   c.peer});
  }
  return out;
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()),
                               &size,
                               reinterpret_cast<const Bytef*>(bytes.data()),
                               static_cast<uLong>(bytes.size()),
                               kDeflateLevel);
  if (status != Z_OK)
    throw Error("the timeline could not be compressed: zlib says " + std::to_string(status));
  out.resize(size);
  return out;
}

void append_u32(std::string& out, size_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xff);
}

struct Columns {
  Column start, duration, cls, step, micro_batch, link, collective, bytes;
  uint64_t last_collective = 0, last_bytes = 0;  // places

  void add(
      const RankTimeline& timeline, size_t i, uint64_t place, uint64_t cls_id, int64_t launch) {
    const Spans& spans = timeline.spans;
    duration.add(static_cast<uint64_t>(std::max<int64_t>(0, spans.duration_ns[i])));
    cls.add(cls_id);
    step.add_delta(spans.step[i]);
    micro_batch.add_delta(spans.micro_batch[i]);
    link.add_delta(launch);
    if (spans.collective[i] >= 0) {
      collective.add(place - last_collective);
      collective.add_delta(spans.collective[i]);
      last_collective = place;
    }
    if (spans.bytes[i] != 0) {
      bytes.add(place - last_bytes);
      bytes.add_signed(spans.bytes[i]);
      last_bytes = place;
    }
  }
};

std::string encode(const RankTimeline& timeline, const Thinning& thinning, TimelineBlob& blob) {
  const Spans& spans = timeline.spans;
  const std::vector<Tracks> lanes = tracks_of(timeline, thinning);
  const Launches launches(timeline, lanes);
  Strings strings(timeline.strings);
  Classes classes(spans, strings);
  Columns columns;
  Json lanes_json = Json::array();
  uint64_t place = 0;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    Json counts = Json::array();
    for (const auto& track : lanes[lane]) {
      int64_t before = blob.begin_ns;
      for (const uint32_t i : track) {
        columns.start.add(static_cast<uint64_t>(spans.start_ns[i] - before));
        before = spans.start_ns[i];
        const int64_t launch =
            timeline.lanes[lane].device ? launches.of(spans.correlation[i]) : int64_t{-1};
        columns.add(timeline, i, place++, classes.id(i), launch);
      }
      counts.push_back(track.size());
    }
    lanes_json.push_back({{"name", timeline.lanes[lane].name},
                          {"device", timeline.lanes[lane].device},
                          {"tracks", std::move(counts)}});
  }
  blob.spans_shown = place;
  Json groups = Json::array();
  Json collectives = collectives_json(timeline, strings, groups);
  const std::pair<const char*, const Column*> named[] = {{"start", &columns.start},
                                                         {"duration", &columns.duration},
                                                         {"class", &columns.cls},
                                                         {"step", &columns.step},
                                                         {"micro_batch", &columns.micro_batch},
                                                         {"link", &columns.link},
                                                         {"collective", &columns.collective},
                                                         {"bytes", &columns.bytes}};
  Json sizes = Json::array();
  for (const auto& [name, column] : named) sizes.push_back({name, column->bytes().size()});
  const Json header = {{"spans", place},
                       {"lanes", std::move(lanes_json)},
                       {"strings", std::move(strings.list())},
                       {"classes", std::move(classes.list())},
                       {"groups", std::move(groups)},
                       {"collectives", std::move(collectives)},
                       {"columns", std::move(sizes)}};
  const std::string json = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out = "VTL1";
  append_u32(out, json.size());
  out += json;
  for (const auto& [name, column] : named) out += column->bytes();
  return base64(deflated(out));
}

}  // namespace

TimelineBlobOptions blob_options(size_t ranks) {
  ranks = std::max<size_t>(1, ranks);
  return {kSpansOfPage / ranks, kBytesOfPage / ranks};
}

TimelineBlob encode_timeline(const RankTimeline& timeline, const TimelineBlobOptions& options) {
  const Spans& spans = timeline.spans;
  TimelineBlob blob;
  blob.rank = timeline.rank;
  blob.wall_anchor_ns = timeline.wall_anchor_ns;
  blob.spans_total = spans.size();
  if (spans.size() > 0) {
    blob.begin_ns = std::numeric_limits<int64_t>::max();
    blob.end_ns = std::numeric_limits<int64_t>::min();
  }
  std::vector<bool> kinds(256);
  for (size_t i = 0; i < spans.size(); ++i) {
    blob.begin_ns = std::min(blob.begin_ns, spans.start_ns[i]);
    blob.end_ns = std::max(blob.end_ns, spans.start_ns[i] + spans.duration_ns[i]);
    kinds[static_cast<uint8_t>(spans.kind[i])] = true;
  }
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    if (kinds[kind]) blob.kinds.push_back(static_cast<uint8_t>(kind));
  }
  for (size_t most = options.max_spans;;) {
    const Thinning thinning(timeline, most);
    blob.base64 = encode(timeline, thinning, blob);
    blob.host_under_ns = thinning.host_under_ns, blob.device_under_ns = thinning.device_under_ns;
    if (blob.base64.size() <= options.max_bytes || most == 0) return blob;
    // Bytes per span grow a little as the cheap ones go.
    const double shrink = 0.9 * double(options.max_bytes) / double(blob.base64.size());
    const auto next = static_cast<size_t>(shrink * double(blob.spans_shown));
    most = std::min(next, blob.spans_shown / 10 * 9);
  }
}

}  // namespace vitrine
