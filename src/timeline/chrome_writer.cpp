// Spans to Kineto's events: engine lanes as streams with their launches, host lanes as threads.
#include "timeline/chrome_writer.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "core/json.h"
#include "core/memory_ledger.h"
#include "timeline/text_sink.h"

namespace vitrine {

namespace {

constexpr int64_t kDayNs = int64_t{86400} * 1000000000;
constexpr int64_t kLongestLaunchNs = 2000;
// Threads that stand for the launching side of device lane i.
constexpr int64_t kFirstLaunchThread = 10000;

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Our word -> the word of c10d in record_param_comms, and the name of NCCL's kernel for it.
struct CollectiveWords {
  const char *ours, *c10d, *nccl;
};
constexpr CollectiveWords kCollectives[] = {
    {"all_gather", "_allgather_base", "AllGather"},
    {"reduce_scatter", "_reduce_scatter_base", "ReduceScatter"},
    {"all_reduce", "allreduce", "AllReduce"},
    {"all_to_all", "all_to_all", "SendRecv"},
    {"all_to_all_v", "all_to_allv", "SendRecv"},
    {"broadcast", "broadcast", "Broadcast"},
    {"send", "send", "SendRecv"},
    {"receive", "recv", "SendRecv"},
};

const CollectiveWords* words_of(const std::string& name) {
  for (const auto& words : kCollectives) {
    if (name == words.ours) return &words;
  }
  return nullptr;
}

std::string c10d_dtype(const std::string& name) {
  const std::pair<const char*, const char*> names[] = {{"f32", "Float"},
                                                       {"bf16", "BFloat16"},
                                                       {"f16", "Half"},
                                                       {"f64", "Double"},
                                                       {"i32", "Int"},
                                                       {"u8", "Byte"}};
  for (const auto& [ours, theirs] : names) {
    if (name == ours) return theirs;
  }
  return name;
}

class Writer {
 public:
  Writer(const RankTimeline& timeline, const std::string& path) : timeline_(timeline), out_(path) {
    names_.reserve(timeline.strings.size());
    for (size_t i = 0; i < timeline.strings.size(); ++i) {
      names_.push_back(quoted(timeline.strings[static_cast<StringId>(i)]));
    }
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const int64_t start : timeline.spans.start_ns) first = std::min(first, start);
    for (const auto& sample : timeline.memory) first = std::min(first, sample.time_ns);
    for (const auto& sample : timeline.counters) first = std::min(first, sample.time_ns);
    if (first == std::numeric_limits<int64_t>::max()) first = 0;
    const int64_t wall = timeline.wall_anchor_ns + first;
    base_ns_ = wall - (wall % kDayNs + kDayNs) % kDayNs;
    shift_ns_ = timeline.wall_anchor_ns - base_ns_;
    host_pid_ = 100000 + timeline.rank;
    const auto pid = timeline.info.find("pid");
    if (pid != timeline.info.end()) host_pid_ = std::strtoll(pid->second.c_str(), nullptr, 10);
  }

  void write() {
    header();
    thread_names();
    find_leaves();
    for (size_t i = 0; i < timeline_.spans.size(); ++i) span(i);
    memory();
    counters();
    out_ << "\n]}\n";
    out_.finish();
  }

 private:
  const Lane& lane_of(size_t i) const {
    return timeline_.lanes[static_cast<size_t>(timeline_.spans.lane[i])];
  }
  const Collective* collective_of(size_t i) const {
    const int32_t index = timeline_.spans.collective[i];
    return index < 0 ? nullptr : &timeline_.collectives[static_cast<size_t>(index)];
  }
  std::string info(const char* key, const char* fallback) const {
    const auto it = timeline_.info.find(key);
    return it == timeline_.info.end() ? fallback : it->second;
  }

  // Holistic Trace Analysis looks for `"rank": N` (with the blank) in the text of the first lines.
  void header() {
    Json device{{"id", timeline_.rank}, {"name", info("device", "cpu")}};
    const std::string memory = info("device.memory_bytes", "");
    if (!memory.empty()) device["totalGlobalMem"] = std::strtoll(memory.c_str(), nullptr, 10);
    std::set<std::pair<std::string, std::vector<int32_t>>> groups;
    for (const auto& collective : timeline_.collectives) {
      groups.emplace(timeline_.strings[collective.group], collective.ranks);
    }
    Json configs = Json::array();
    for (const auto& [name, ranks] : groups) {
      configs.push_back({{"pg_name", name},
                         {"pg_desc", name},
                         {"backend_config", info("backend", "gloo")},
                         {"pg_size", ranks.size()},
                         {"ranks", ranks}});
    }
    const auto text = [](const Json& json) {
      return json.dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    out_ << "{\n\"schemaVersion\": 1,\n\"deviceProperties\": [" << text(device)
         << "],\n\"distributedInfo\": {\"backend\": " << quoted(info("backend", "gloo"))
         << ", \"rank\": " << timeline_.rank << ", \"world_size\": " << timeline_.world_size
         << ", \"pg_count\": " << static_cast<int64_t>(configs.size())
         << ", \"pg_config\": " << text(configs) << "}"
         << ",\n\"record_shapes\": 1,\n\"profile_memory\": 1,\n\"displayTimeUnit\": \"ms\""
         << ",\n\"baseTimeNanoseconds\": " << base_ns_
         << ",\n\"traceName\": " << quoted(timeline_.source)
         << ",\n\"vitrine\": " << text(Json(timeline_.info)) << ",\n\"traceEvents\": [";
  }

  void begin_event(const char* phase) {
    out_ << (first_event_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"") << phase << "\"";
    first_event_ = false;
  }
  void time(const char* key, int64_t ns) {
    out_ << ",\"" << key << "\":";
    out_.microseconds(ns);
  }
  void complete(const char* category,
                std::string_view quoted_name,
                int64_t pid,
                int64_t tid,
                int64_t start_ns,
                int64_t duration_ns) {
    begin_event("X");
    out_ << ",\"cat\":\"" << category << "\",\"name\":" << quoted_name << ",\"pid\":" << pid
         << ",\"tid\":" << tid;
    time("ts", start_ns + shift_ns_);
    time("dur", duration_ns);
    out_ << ",\"args\":{";
    first_arg_ = true;
  }
  void key(const char* name) {
    out_ << (first_arg_ ? "\"" : ",\"") << name << "\":";
    first_arg_ = false;
  }
  void arg(const char* name, int64_t value) {
    key(name);
    out_ << value;
  }
  void arg(const char* name, std::string_view quoted_text) {
    key(name);
    out_ << quoted_text;
  }

  void metadata(
      const char* name, int64_t pid, int64_t tid, const char* arg_name, const std::string& value) {
    begin_event("M");
    out_ << ",\"name\":\"" << name << "\",\"ts\":0,\"pid\":" << pid << ",\"tid\":" << tid
         << ",\"args\":{\"" << arg_name << "\":" << value << "}}";
  }
  void thread_names() {
    const std::string rank = "rank " + std::to_string(timeline_.rank);
    metadata("process_name", host_pid_, 0, "name", quoted(rank + " host"));
    metadata("process_sort_index", host_pid_, 0, "sort_index", std::to_string(2 * timeline_.rank));
    metadata("process_name", timeline_.rank, 0, "name", quoted(rank + " lanes"));
    metadata("process_labels", timeline_.rank, 0, "labels", quoted(info("device", "cpu")));
    metadata("process_sort_index",
             timeline_.rank,
             0,
             "sort_index",
             std::to_string(2 * timeline_.rank + 1));
    for (const Lane& lane : timeline_.lanes) {
      metadata("thread_name",
               lane.device ? timeline_.rank : host_pid_,
               lane.tid,
               "name",
               quoted(lane.name));
      if (lane.device) {
        metadata("thread_name",
                 host_pid_,
                 kFirstLaunchThread + lane.tid,
                 "name",
                 quoted(lane.name + " (launches)"));
      }
    }
  }

  // On a device lane only innermost spans are work of the stream; what encloses others is an
  // annotation.
  void find_leaves() {
    const Spans& spans = timeline_.spans;
    leaf_.assign(spans.size(), true);
    std::vector<std::vector<size_t>> open(timeline_.lanes.size());
    int64_t largest = 0;
    for (size_t i = 0; i < spans.size(); ++i) {
      auto& stack = open[static_cast<size_t>(spans.lane[i])];
      const int64_t end = spans.start_ns[i] + spans.duration_ns[i];
      while (!stack.empty() &&
             spans.start_ns[stack.back()] + spans.duration_ns[stack.back()] <= spans.start_ns[i]) {
        stack.pop_back();
      }
      if (!stack.empty() && end <= spans.start_ns[stack.back()] + spans.duration_ns[stack.back()]) {
        leaf_[stack.back()] = false;
      }
      stack.push_back(i);
      largest = std::max(largest, spans.correlation[i]);
      if (spans.correlation[i] != 0) {
        (lane_of(i).device ? working_ : launched_).insert(spans.correlation[i]);
      }
    }
    next_correlation_ = largest + 1;
    launch_end_.assign(timeline_.lanes.size(), std::numeric_limits<int64_t>::min());
  }

  static bool stream_work(SpanKind kind) {
    return is_communication(kind) || kind == SpanKind::kForward || kind == SpanKind::kRecompute ||
           kind == SpanKind::kBackward || kind == SpanKind::kOptimizer ||
           kind == SpanKind::kOperation || kind == SpanKind::kKernel || kind == SpanKind::kCopy ||
           kind == SpanKind::kDisk;
  }

  void span(size_t i) {
    if (timeline_.spans.kind[i] == SpanKind::kStep) step_start_ns_ = timeline_.spans.start_ns[i];
    if (!lane_of(i).device) {
      host_span(i);
    } else if (leaf_[i] && stream_work(timeline_.spans.kind[i])) {
      device_work(i);
    } else {
      complete("gpu_user_annotation",
               names_[timeline_.spans.name[i]],
               timeline_.rank,
               lane_of(i).tid,
               timeline_.spans.start_ns[i],
               timeline_.spans.duration_ns[i]);
      own_args(i);
      out_ << "}}";
    }
  }

  void host_span(size_t i) {
    const Spans& spans = timeline_.spans;
    const SpanKind kind = spans.kind[i];
    const bool annotation = kind == SpanKind::kStep || kind == SpanKind::kRegion ||
                            kind == SpanKind::kHost || kind == SpanKind::kSync ||
                            kind == SpanKind::kData;
    const char* category = annotation                   ? "user_annotation"
                           : kind == SpanKind::kRuntime ? "cuda_runtime"
                                                        : "cpu_op";
    std::string name = names_[spans.name[i]];
    if (kind == SpanKind::kStep) name = "\"ProfilerStep#" + std::to_string(spans.step[i]) + "\"";
    if (kind == SpanKind::kData) name = quoted("DataLoader: " + timeline_.strings[spans.name[i]]);
    complete(category, name, host_pid_, lane_of(i).tid, spans.start_ns[i], spans.duration_ns[i]);
    if (spans.correlation[i] != 0) arg("correlation", spans.correlation[i]);
    if (const Collective* collective = collective_of(i)) collective_args(*collective);
    own_args(i);
    out_ << "}}";
    if (kind == SpanKind::kRuntime && working_.contains(spans.correlation[i])) {
      flow("s", spans.correlation[i], host_pid_, lane_of(i).tid, spans.start_ns[i]);
    }
  }

  void device_work(size_t i) {
    const Spans& spans = timeline_.spans;
    const Lane& lane = lane_of(i);
    const Collective* collective = collective_of(i);
    const int64_t start = spans.start_ns[i];
    int64_t correlation = spans.correlation[i];
    if (correlation == 0) correlation = next_correlation_++;
    if (!launched_.contains(correlation)) launch(i, correlation);

    const bool memory = spans.kind[i] == SpanKind::kCopy || spans.kind[i] == SpanKind::kDisk;
    std::string name = names_[spans.name[i]];
    const std::string& plain = timeline_.strings[spans.name[i]];
    const bool set = plain.starts_with("Memset");
    if (plain.starts_with("Memcpy") && is_communication(spans.kind[i])) {
      name = quoted(kernel_name(spans.kind[i] == SpanKind::kGather   ? "all_gather"
                                : spans.kind[i] == SpanKind::kReduce ? "reduce_scatter"
                                                                     : "send"));
    } else if (set || plain.starts_with("Memcpy") || plain.starts_with("nccl")) {
      // A GPU's own record, named as Kineto names it.
    } else if (memory) {
      name = quoted((spans.kind[i] == SpanKind::kDisk ? "Memcpy disk (" : "Memcpy (") +
                    timeline_.strings[spans.name[i]] + ")");
    } else if (collective != nullptr) {
      name = quoted(kernel_name(timeline_.strings[collective->name]));
    }
    complete(set      ? "gpu_memset"
             : memory ? "gpu_memcpy"
                      : "kernel",
             name,
             timeline_.rank,
             lane.tid,
             start,
             spans.duration_ns[i]);
    arg("External id", correlation);
    arg("device", timeline_.rank);
    arg("context", 1);
    arg("stream", lane.tid);
    arg("correlation", correlation);
    if (spans.bytes[i] > 0) arg("bytes", spans.bytes[i]);
    if (collective != nullptr) collective_args(*collective);
    own_args(i);
    out_ << "}}";
    flow("f", correlation, timeline_.rank, lane.tid, start);
  }

  // HTA and TraceLens know communication kernels by "nccl" in the name.
  static std::string kernel_name(const std::string& collective) {
    const CollectiveWords* words = words_of(collective);
    return "vitrine_" + collective + "(ncclKernel_" + (words ? words->nccl : "Other") + ")";
  }

  // The engine has no launches of its own: its lanes are threads that do the work. Tools attribute
  // device work by its launch, so one is written that ends where the work begins, inside the same
  // step.
  void launch(size_t i, int64_t correlation) {
    const Spans& spans = timeline_.spans;
    int64_t& last = launch_end_[static_cast<size_t>(spans.lane[i])];
    const int64_t end = spans.start_ns[i];
    const int64_t begin =
        std::min(end, std::max({end - kLongestLaunchNs, last, std::min(step_start_ns_, end)}));
    last = end;
    const int64_t tid = kFirstLaunchThread + lane_of(i).tid;
    const Collective* collective = collective_of(i);
    complete("cpu_op",
             collective ? "\"record_param_comms\"" : names_[spans.name[i]],
             host_pid_,
             tid,
             begin,
             end - begin);
    arg("External id", correlation);
    if (collective != nullptr) collective_args(*collective);
    out_ << "}}";
    complete("cuda_runtime", "\"cudaLaunchKernel\"", host_pid_, tid, begin, end - begin);
    arg("External id", correlation);
    arg("correlation", correlation);
    out_ << "}}";
    flow("s", correlation, host_pid_, tid, begin);
  }

  void flow(const char* phase, int64_t id, int64_t pid, int64_t tid, int64_t ns) {
    begin_event(phase);
    out_ << ",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":" << id << ",\"pid\":" << pid
         << ",\"tid\":" << tid;
    time("ts", ns + shift_ns_);
    out_ << (*phase == 'f' ? ",\"bp\":\"e\"}" : "}");
  }

  void collective_args(const Collective& collective) {
    const std::string& name = timeline_.strings[collective.name];
    const CollectiveWords* words = words_of(name);
    arg("Collective name", quoted(words ? words->c10d : name));
    arg("In msg nelems", collective.in_elements);
    arg("Out msg nelems", collective.out_elements);
    arg("Group size", static_cast<int64_t>(collective.ranks.size()));
    arg("dtype", quoted(c10d_dtype(timeline_.strings[collective.dtype])));
    arg("Process Group Name", names_[collective.group]);
    arg("Process Group Description", names_[collective.group]);
    std::string ranks = "[";
    for (const int32_t rank : collective.ranks) {
      ranks += (ranks.size() > 1 ? ", " : "") + std::to_string(rank);
    }
    arg("Process Group Ranks", quoted(ranks + "]"));
    if (collective.sequence >= 0) arg("Seq", collective.sequence);
    arg("Rank", timeline_.rank);
    if (collective.peer >= 0) {
      arg(name == "receive" ? "Src Rank" : "Dst Rank", collective.peer);
    }
    arg("Sent bytes", collective.sent_bytes);
  }

  // What Kineto has no word for.
  void own_args(size_t i) {
    const Spans& spans = timeline_.spans;
    arg("Kind", std::string("\"") + span_kind_name(spans.kind[i]) + "\"");
    if (spans.collective[i] >= 0) arg("Label", names_[spans.name[i]]);
    if (spans.block[i] != kNoString) arg("Block", names_[spans.block[i]]);
    if (spans.step[i] >= 0) arg("Step", spans.step[i]);
    if (spans.micro_batch[i] >= 0) arg("Micro batch", spans.micro_batch[i]);
  }

  void memory() {
    int64_t before = 0;
    for (const MemorySample& sample : timeline_.memory) {
      int64_t total = 0;
      for (const int64_t bytes : sample.bytes) total += bytes;
      begin_event("i");
      out_ << ",\"cat\":\"cpu_instant_event\",\"s\":\"t\",\"name\":\"[memory]\",\"pid\":"
           << host_pid_ << ",\"tid\":0";
      time("ts", sample.time_ns + shift_ns_);
      out_ << ",\"args\":{\"Total Reserved\":" << total << ",\"Total Allocated\":" << total
           << ",\"Bytes\":" << total - before << ",\"Device Id\":" << int64_t{timeline_.rank}
           << ",\"Device Type\":1,\"Addr\":0}}";
      before = total;
      begin_event("C");
      out_ << ",\"name\":\"memory by category\",\"pid\":" << int64_t{timeline_.rank}
           << ",\"tid\":0";
      time("ts", sample.time_ns + shift_ns_);
      out_ << ",\"args\":{";
      first_arg_ = true;
      for (size_t c = 0; c < sample.bytes.size(); ++c) {
        arg(memory_category_name(static_cast<MemoryCategory>(c)), sample.bytes[c]);
      }
      out_ << "}}";
    }
  }

  void counters() {
    for (const CounterSample& sample : timeline_.counters) {
      begin_event("C");
      out_ << ",\"name\":" << names_[sample.name] << ",\"pid\":" << host_pid_ << ",\"tid\":0";
      time("ts", sample.time_ns + shift_ns_);
      out_ << ",\"args\":{\"value\":" << Json(sample.value).dump() << "}}";
    }
  }

  const RankTimeline& timeline_;
  TextSink out_;
  std::vector<std::string> names_;  // quoted, by StringId
  int64_t base_ns_ = 0, shift_ns_ = 0, host_pid_ = 0;
  bool first_event_ = true, first_arg_ = true;
  std::vector<bool> leaf_;
  // Correlations that a host span has, and those that device work has.
  std::unordered_set<int64_t> launched_, working_;
  int64_t next_correlation_ = 1;
  std::vector<int64_t> launch_end_;  // by lane
  int64_t step_start_ns_ = std::numeric_limits<int64_t>::min();
};

}  // namespace

void write_chrome_trace(const RankTimeline& timeline, const std::string& path) {
  Writer(timeline, path).write();
}

}  // namespace vitrine
