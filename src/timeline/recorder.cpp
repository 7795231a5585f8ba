// Per-thread buffers, the recording schedule, and the gathering of buffers into one timeline.
#include "timeline/recorder.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "timeline/chunk_queue.h"

namespace vitrine {

namespace {

struct CollectiveSpan {
  SpanRecord span;
  CollectiveRecord collective;
};

std::atomic<uint64_t> next_recorder_id{1};
constexpr int64_t kOpen = std::numeric_limits<int64_t>::max();

// Mean cost of the calls around one span: two clock readings and one push.
double measure_ns_per_span() {
  constexpr int kSpans = 2000;
  ChunkQueue<SpanRecord> queue;
  queue.warm_up(kSpans / ChunkQueue<SpanRecord>::kChunkItems + 1);
  const int64_t start = now_ns();
  for (int i = 0; i < kSpans; ++i) {
    SpanRecord record;
    record.start_ns = now_ns();
    record.duration_ns = now_ns() - record.start_ns;
    queue.push(record, [](size_t) { return true; });
  }
  return static_cast<double>(now_ns() - start) / kSpans;
}

}  // namespace

struct Recorder::ThreadBuffer {
  std::thread::id owner;
  ChunkQueue<SpanRecord> spans;
  ChunkQueue<CollectiveSpan> collectives;
  ChunkQueue<MemorySample> memory;
  ChunkQueue<CounterSample> counters;
};

Recorder::Recorder(int32_t rank, int32_t world_size, RecorderOptions options)
    : options_(options), id_(next_recorder_id.fetch_add(1)), rank_(rank), world_size_(world_size) {}

Recorder::~Recorder() = default;

StringId Recorder::intern(const std::string& text) {
  const std::lock_guard lock(mutex_);
  return strings_.intern(text);
}

int32_t Recorder::lane(const std::string& name, bool device) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].name == name) return static_cast<int32_t>(i);
  }
  lanes_.push_back({name, device, static_cast<int64_t>(lanes_.size())});
  return static_cast<int32_t>(lanes_.size() - 1);
}

int32_t Recorder::group(const std::string& name, const std::vector<int32_t>& global_ranks) {
  const std::lock_guard lock(mutex_);
  const StringId id = strings_.intern(name);
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].name == id && groups_[i].ranks == global_ranks) return static_cast<int32_t>(i);
  }
  groups_.push_back({id, global_ranks});
  return static_cast<int32_t>(groups_.size() - 1);
}

void Recorder::set_info(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  info_[key] = value;
}

void Recorder::open_window() {
  if (!active()) windows_.push_back({now_ns(), kOpen});
  window_open_ = true;
  recording_ = true;
}

void Recorder::close_window() {
  if (active()) windows_.back().end_ns = now_ns();
  window_open_ = false;
  recording_ = false;
}

void Recorder::begin_step(int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = static_cast<int32_t>(step);
  const int64_t counted = steps_begun_++ - options_.skip_first;
  const int64_t cycle = options_.wait + options_.warmup + options_.active;
  last_of_cycle_ = false;
  if (!by_hand_ && options_.active > 0) {
    const bool scheduled =
        counted >= 0 && (options_.repeat == 0 || counted / cycle < options_.repeat);
    const int64_t place = scheduled ? counted % cycle : -1;
    if (place >= options_.wait + options_.warmup) {
      open_window();
      last_of_cycle_ = place == cycle - 1;
    } else {
      close_window();
      recording_ = place >= options_.wait;
    }
  }
  step_start_ns_ = now_ns();
}

bool Recorder::end_step() {
  SpanRecord record;
  {
    const std::lock_guard lock(mutex_);
    if (step_lane_ < 0) {
      step_lane_ = static_cast<int32_t>(lanes_.size());
      lanes_.push_back({"steps", false, step_lane_});
    }
    record.start_ns = step_start_ns_;
    record.duration_ns = now_ns() - step_start_ns_;
    record.name = strings_.intern("step");
    record.lane = step_lane_;
    record.step = step_;
    record.kind = SpanKind::kStep;
  }
  span(record);
  const std::lock_guard lock(mutex_);
  if (!last_of_cycle_ || by_hand_) return false;
  close_window();
  last_of_cycle_ = false;
  return true;
}

void Recorder::start() {
  const std::lock_guard lock(mutex_);
  by_hand_ = true;
  open_window();
}

void Recorder::stop() {
  const std::lock_guard lock(mutex_);
  by_hand_ = false;
  close_window();
}

bool Recorder::may_grow(size_t bytes) {
  if (bytes_.fetch_add(bytes) + bytes <= options_.max_bytes) return true;
  bytes_.fetch_sub(bytes);
  dropped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

Recorder::ThreadBuffer& Recorder::buffer() {
  thread_local uint64_t cached_id = 0;
  thread_local ThreadBuffer* cached = nullptr;
  if (cached_id == id_) return *cached;
  const std::lock_guard lock(mutex_);
  cached_id = 0;
  const auto self = std::this_thread::get_id();
  cached = nullptr;
  for (const auto& candidate : buffers_) {
    if (candidate->owner == self) cached = candidate.get();
  }
  if (cached == nullptr) {
    buffers_.push_back(std::make_unique<ThreadBuffer>());
    cached = buffers_.back().get();
    cached->owner = self;
    constexpr size_t kChunks = kReadySpans / ChunkQueue<SpanRecord>::kChunkItems;
    const size_t room = options_.max_bytes / 4 / ChunkQueue<SpanRecord>::chunk_bytes();
    const size_t chunks = std::min(kChunks, room);
    cached->spans.warm_up(chunks);
    bytes_.fetch_add(chunks * ChunkQueue<SpanRecord>::chunk_bytes());
  }
  cached_id = id_;
  return *cached;
}

void Recorder::push(const SpanRecord& record) {
  buffer().spans.push(record, [this](size_t bytes) { return may_grow(bytes); });
}

void Recorder::push(const SpanRecord& record, const CollectiveRecord& collective) {
  buffer().collectives.push({record, collective}, [this](size_t bytes) { return may_grow(bytes); });
}

void Recorder::push(const MemorySample& sample) {
  buffer().memory.push(sample, [this](size_t bytes) { return may_grow(bytes); });
}

void Recorder::push(const CounterSample& sample) {
  buffer().counters.push(sample, [this](size_t bytes) { return may_grow(bytes); });
}

RankTimeline Recorder::take() {
  const std::lock_guard lock(mutex_);
  std::vector<CollectiveSpan> taken;
  RankTimeline out;
  const auto kept = [this](int64_t time_ns) {
    return std::any_of(windows_.begin(), windows_.end(), [&](const Window& window) {
      return time_ns >= window.start_ns && time_ns < window.end_ns;
    });
  };
  size_t freed = 0;
  for (const auto& buffer : buffers_) {
    freed += buffer->spans.drain([&](const SpanRecord& span) {
      if (kept(span.start_ns)) taken.push_back({span, {}});
    });
    freed += buffer->collectives.drain([&](const CollectiveSpan& span) {
      if (kept(span.span.start_ns)) taken.push_back(span);
    });
    freed += buffer->memory.drain([&](const MemorySample& sample) {
      if (kept(sample.time_ns)) out.memory.push_back(sample);
    });
    freed += buffer->counters.drain([&](const CounterSample& sample) {
      if (kept(sample.time_ns)) out.counters.push_back(sample);
    });
  }
  bytes_.fetch_sub(std::min(freed, bytes_.load()));
  std::erase_if(windows_, [](const Window& window) { return window.end_ns != kOpen; });

  std::stable_sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) {
    if (a.span.start_ns != b.span.start_ns) return a.span.start_ns < b.span.start_ns;
    return a.span.duration_ns > b.span.duration_ns;
  });
  const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  std::stable_sort(out.memory.begin(), out.memory.end(), by_time);
  std::stable_sort(out.counters.begin(), out.counters.end(), by_time);

  out.rank = rank_;
  out.world_size = world_size_;
  out.source = "recorded";
  out.strings = strings_;
  out.lanes = lanes_;
  out.info = info_;
  out.wall_anchor_ns = clock_anchor().wall_ns - clock_anchor().monotonic_ns;
  out.spans.reserve(taken.size());
  for (const auto& [span, collective] : taken) {
    out.spans.start_ns.push_back(span.start_ns);
    out.spans.duration_ns.push_back(span.duration_ns);
    out.spans.name.push_back(span.name);
    out.spans.kind.push_back(span.kind);
    out.spans.lane.push_back(span.lane);
    out.spans.step.push_back(span.step);
    out.spans.micro_batch.push_back(span.micro_batch);
    out.spans.block.push_back(span.block);
    out.spans.correlation.push_back(span.correlation);
    out.spans.bytes.push_back(0);
    out.spans.shapes.push_back(kNoString);
    if (collective.name == kNoString) {
      out.spans.collective.push_back(-1);
      continue;
    }
    out.spans.collective.push_back(static_cast<int32_t>(out.collectives.size()));
    Collective full;
    full.name = collective.name;
    full.dtype = collective.dtype;
    full.sequence = collective.sequence;
    full.in_elements = collective.in_elements;
    full.out_elements = collective.out_elements;
    full.sent_bytes = collective.sent_bytes;
    full.peer = collective.peer;
    if (collective.group >= 0) {
      const Group& group = groups_[static_cast<size_t>(collective.group)];
      full.group = group.name;
      full.ranks = group.ranks;
    }
    out.collectives.push_back(std::move(full));
  }
  out.info["recorder.ns_per_span"] = std::to_string(measure_ns_per_span());
  out.info["recorder.spans"] = std::to_string(taken.size());
  out.info["recorder.dropped"] = std::to_string(dropped_.load());
  return out;
}

}  // namespace vitrine
