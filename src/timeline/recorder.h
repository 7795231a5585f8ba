// Records what one rank does, from all of its lane threads at once, into a RankTimeline.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/memory_ledger.h"
#include "timeline/timeline.h"

namespace vitrine {

// The schedule is torch.profiler's: after `skip_first` steps, cycles of `wait` idle steps, `warmup`
// steps that are recorded and thrown away (buffers get allocated), `active` recorded steps.
// `repeat` cycles, 0 = no end. active = 0: only start() and stop() record.
struct RecorderOptions {
  int64_t skip_first = 0, wait = 1, warmup = 1, active = 3, repeat = 1;
  bool operations = false;  // one span an operation of a block, not only one a block
  bool memory = true;
  bool regions = true;
  size_t max_bytes = size_t{512} << 20;  // beyond it spans are dropped, and counted
};

struct SpanRecord {
  int64_t start_ns = 0, duration_ns = 0;  // now_ns() time
  StringId name = kNoString;
  StringId block = kNoString;
  int32_t lane = 0;
  int32_t step = -1, micro_batch = -1;
  SpanKind kind = SpanKind::kHost;
  int64_t correlation = 0;
};

// `group` comes from Recorder::group(). Elements and bytes are this rank's.
struct CollectiveRecord {
  StringId name = kNoString;
  StringId dtype = kNoString;
  int32_t group = -1, peer = -1;
  int64_t sequence = -1;
  int64_t in_elements = 0, out_elements = 0, sent_bytes = 0;
};

// span(), collective(), memory_sample(), counter() may be called from any thread at any time: they
// write to a buffer of the calling thread without a lock, and cost one branch while nothing is
// recorded. intern(), lane() and group() take a lock: call them before the hot path and keep the
// numbers. begin_step() and end_step() come from one thread; start(), stop() and take() from any.
class Recorder {
 public:
  Recorder(int32_t rank, int32_t world_size, RecorderOptions options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  StringId intern(const std::string& text);
  // The number of the lane of that name, registered on first use. The engine's lanes stand where
  // device streams stand; host threads are registered with device = false.
  int32_t lane(const std::string& name, bool device = true);
  int32_t group(const std::string& name, const std::vector<int32_t>& global_ranks);
  void set_info(const std::string& key, const std::string& value);
  // Makes the calling thread's buffer ready for kReadySpans spans; its first span would do it
  // otherwise.
  void attach_thread() { buffer(); }
  static constexpr size_t kReadySpans = 16384;

  void begin_step(int64_t step);
  // True when a recorded window has just closed: take() now and write the file.
  bool end_step();
  // By hand, or from outside: opens and closes a window whatever the schedule says.
  void start();
  void stop();

  // Inside a window (warm-up steps are not).
  bool active() const { return window_open_.load(std::memory_order_relaxed); }
  // Whether span() keeps what it is given now (active or warming up).
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  bool wants_operations() const { return options_.operations && recording(); }
  bool wants_memory() const { return options_.memory && recording(); }
  int32_t step() const { return step_.load(std::memory_order_relaxed); }
  const RecorderOptions& options() const { return options_; }

  void span(const SpanRecord& record) {
    if (recording()) push(record);
  }
  void collective(const SpanRecord& record, const CollectiveRecord& collective) {
    if (recording()) push(record, collective);
  }
  void memory_sample(int64_t time_ns, const MemoryByCategory& bytes) {
    if (wants_memory()) push(MemorySample{time_ns, bytes});
  }
  void counter(StringId name, double value) {
    if (recording()) push(CounterSample{now_ns(), name, value});
  }

  // Everything recorded in windows since the last take(), sorted by start (a parent before its
  // children). info gets "recorder.ns_per_span" (measured here), "recorder.spans" and
  // "recorder.dropped".
  RankTimeline take();

 private:
  struct ThreadBuffer;
  // [start_ns, end_ns); the last one is open while end_ns is INT64_MAX.
  struct Window {
    int64_t start_ns, end_ns;
  };
  struct Group {
    StringId name;
    std::vector<int32_t> ranks;
  };

  void push(const SpanRecord& record);
  void push(const SpanRecord& record, const CollectiveRecord& collective);
  void push(const MemorySample& sample);
  void push(const CounterSample& sample);
  ThreadBuffer& buffer();
  bool may_grow(size_t bytes);
  void open_window();   // with mutex_ held
  void close_window();  // with mutex_ held

  const RecorderOptions options_;
  const uint64_t id_;  // never reused, so that a thread's cached buffer can't outlive its recorder
  const int32_t rank_, world_size_;
  std::atomic<bool> recording_{false}, window_open_{false};
  std::atomic<int32_t> step_{-1};
  std::atomic<size_t> bytes_{0};
  std::atomic<int64_t> dropped_{0};

  std::mutex mutex_;
  StringPool strings_;
  std::vector<Lane> lanes_;
  std::vector<Group> groups_;
  std::map<std::string, std::string> info_;
  std::vector<std::unique_ptr<ThreadBuffer>> buffers_;
  std::vector<Window> windows_;
  bool by_hand_ = false;     // start() was called: the schedule keeps its hands off
  int64_t steps_begun_ = 0;  // the schedule counts steps from the recorder's birth
  bool last_of_cycle_ = false;
  int64_t step_start_ns_ = 0;
  int32_t step_lane_ = -1;
};

// Times a scope as a span on `lane`.
class Region {
 public:
  Region(Recorder& recorder, StringId name, int32_t lane, SpanKind kind = SpanKind::kRegion)
      : recorder_(recorder),
        wanted_(recorder.recording() && (kind != SpanKind::kRegion || recorder.options().regions)) {
    if (!wanted_) return;
    record_.name = name, record_.lane = lane, record_.kind = kind;
    record_.step = recorder.step();
    record_.start_ns = now_ns();
  }
  ~Region() {
    if (!wanted_) return;
    record_.duration_ns = now_ns() - record_.start_ns;
    recorder_.span(record_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  // Fields that are known only inside the scope: block, micro_batch, ...
  SpanRecord& record() { return record_; }

 private:
  Recorder& recorder_;
  const bool wanted_;
  SpanRecord record_;
};

}  // namespace vitrine
