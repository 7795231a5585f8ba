// Nsight's tables, row by row, into a draft for each (process, device).
#include "readers/nsys_sqlite.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "readers/file_rank.h"
#include "readers/kineto_names.h"
#include "readers/nsys_draft.h"
#include "readers/nsys_ranges.h"
#include "readers/sqlite_file.h"

namespace vitrine {

namespace {

const std::string kKernels = "CUPTI_ACTIVITY_KIND_KERNEL", kCopies = "CUPTI_ACTIVITY_KIND_MEMCPY",
                  kSets = "CUPTI_ACTIVITY_KIND_MEMSET", kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
                  kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME",
                  kSyncs = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", kRanges = "NVTX_EVENTS";

// A globalTid is hardware, machine, process and thread in 8, 8, 24 and 24 bits.
int64_t process_of(int64_t global) { return global >> 24 & 0xFFFFFF; }
int64_t thread_of(int64_t global) { return global & 0xFFFFFF; }

const char* copy_name(int64_t kind) {
  switch (kind) {
    case 1:
      return "Memcpy HtoD";
    case 2:
      return "Memcpy DtoH";
    case 8:
      return "Memcpy DtoD";
    case 9:
      return "Memcpy HtoH";
    case 10:
      return "Memcpy PtoP";
    default:
      return "Memcpy";
  }
}

const char* sync_name(int64_t type) {
  switch (type) {
    case 1:
      return "Event Sync";
    case 2:
      return "Stream Wait Event";
    case 3:
      return "Stream Sync";
    case 4:
      return "Context Sync";
    default:
      return "Sync";
  }
}

class NsysReader {
 public:
  explicit NsysReader(const std::string& path) : path_(path), file_(path) {}

  std::vector<RankTimeline> run() {
    if (!file_.has("StringIds") ||
        !(file_.has(kKernels) || file_.has(kCalls) || file_.has(kRanges) || file_.has(kCopies))) {
      throw IoError(
          path_ +
          " is a SQLite database, but none of Nsight Systems with CUDA or NVTX events: it "
          "lacks the tables StringIds and " +
          kKernels +
          "; record with nsys profile --trace=cuda,nvtx and export with nsys export "
          "--type sqlite");
    }
    read_names();
    kernels();
    copies();
    graphs();
    make_host_only();
    calls();
    synchronisation();
    ranges();
    return finish();
  }

 private:
  using Key = std::pair<int64_t, int64_t>;  // device, process

  NsysDraft& draft(int64_t process, int64_t device) {
    const auto [found, is_new] = drafts_.try_emplace({device, process});
    if (is_new) {
      found->second.process = process;
      found->second.device = device;
      of_process_[process].push_back(&found->second);
    }
    return found->second;
  }

  const std::vector<NsysDraft*>& drafts_of(int64_t process) {
    static const std::vector<NsysDraft*> none;
    const auto found = of_process_.find(process);
    return found == of_process_.end() ? none : found->second;
  }

  void read_names() {
    file_.each("StringIds", {"id", "value"}, [&](const SqliteRow& row) {
      names_[row.integer(0)] = row.text(1);
    });
    file_.each("ThreadNames", {"nameId", "globalTid"}, [&](const SqliteRow& row) {
      thread_names_[row.integer(1)] = name(row.integer(0));
    });
    for (const std::string& table : {kKernels, kCalls, kRanges}) {
      if (!file_.has(table)) warnings_.push_back("the export has no table " + table);
    }
    for (const std::string& table : {kKernels, kCopies, kCalls}) {
      if (!file_.has(table) || (file_.has(table, "start") && file_.has(table, "end"))) continue;
      warnings_.push_back(table + " has no columns \"start\" and \"end\": its rows are not read");
    }
    if (file_.has(kKernels) && !file_.has(kKernels, "correlationId")) {
      warnings_.push_back("kernels have no correlationId: their launches are not known");
    }
  }

  const std::string& name(int64_t id) const {
    static const std::string unknown;
    const auto found = names_.find(id);
    return found == names_.end() ? unknown : found->second;
  }

  // Columns 0 to 5 of device work: start, end, deviceId, streamId, correlationId, globalPid.
  NsysEvent& device_event(const SqliteRow& row, SpanKind kind, const std::string& text) {
    NsysDraft& to = draft(process_of(row.integer(5)), row.integer(2));
    NsysEvent& event = to.events.emplace_back();
    event.start_ns = row.integer(0), event.end_ns = row.integer(1);
    event.lane = to.stream_lane(row.integer(3));
    event.correlation = row.integer(4);
    event.kind = kind;
    event.name = to.timeline.strings.intern(text);
    if (event.correlation != 0) device_of_call_[{to.process, event.correlation}] = to.device;
    return event;
  }
  static std::vector<std::string> device_columns(const std::vector<std::string>& more) {
    std::vector<std::string> all = {
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  void kernels() {
    std::unordered_map<int64_t, bool> communicates;  // by name
    file_.each(kKernels,
               device_columns({"demangledName", "shortName", "graphNodeId"}),
               [&](const SqliteRow& row) {
                 const int64_t id = row.null(6) ? row.integer(7) : row.integer(6);
                 const auto [known, is_new] = communicates.try_emplace(id, false);
                 if (is_new) known->second = is_communication_kernel(name(id));
                 device_event(row,
                              known->second ? SpanKind::kCollective : SpanKind::kKernel,
                              name(id).empty() ? "kernel" : name(id));
                 in_graphs_ += row.integer(8) != 0;
               });
  }

  void copies() {
    file_.each(kCopies, device_columns({"copyKind", "bytes"}), [&](const SqliteRow& row) {
      device_event(row, SpanKind::kCopy, copy_name(row.integer(6))).bytes = row.integer(7);
    });
    file_.each(kSets, device_columns({"bytes"}), [&](const SqliteRow& row) {
      device_event(row, SpanKind::kCopy, "Memset").bytes = row.integer(6);
    });
  }

  // Without --cuda-graph-trace=node a graph is one row.
  void graphs() {
    int64_t whole = 0;
    file_.each(kGraphs, device_columns({"graphId"}), [&](const SqliteRow& row) {
      device_event(row, SpanKind::kKernel, "CUDA graph " + std::to_string(row.integer(6)));
      ++whole;
    });
    if (whole > 0) {
      warnings_.push_back(format(
          "%lld launches of CUDA graphs are traced whole: the kernels and collectives inside "
          "are not known; record with --cuda-graph-trace=node",
          static_cast<long long>(whole)));
    }
  }

  // Without device work the processes still have calls and ranges.
  void make_host_only() {
    if (!drafts_.empty()) return;
    std::set<int64_t> processes;
    for (const std::string& table : {kCalls, kRanges}) {
      file_.each(table, {"globalTid"}, [&](const SqliteRow& row) {
        processes.insert(process_of(row.integer(0)));
      });
    }
    if (processes.empty()) {
      throw IoError(path_ +
                    " holds no kernel, copy, CUDA call or NVTX range; record with nsys profile "
                    "--trace=cuda,nvtx, around the training steps");
    }
    for (const int64_t process : processes) draft(process, -1);
    warnings_.push_back("the report holds no device work: was the job on a GPU, and CUDA traced?");
  }

  int32_t thread_lane(NsysDraft& draft, int64_t global) {
    const auto found = thread_names_.find(global);
    return draft.thread_lane(thread_of(global), found == thread_names_.end() ? "" : found->second);
  }

  void calls() {
    int64_t others = 0;
    file_.each(kCalls,
               {"start", "end", "globalTid", "correlationId", "nameId"},
               [&](const SqliteRow& row) {
                 const int64_t process = process_of(row.integer(2)), correlation = row.integer(3);
                 // A call belongs to the device that it made work; others to all of the process.
                 const auto device = device_of_call_.find({process, correlation});
                 const auto& drafts = drafts_of(process);
                 others += drafts.empty();
                 for (NsysDraft* to : drafts) {
                   if (device != device_of_call_.end() && device->second != to->device) continue;
                   NsysEvent& event = to->events.emplace_back();
                   event.start_ns = row.integer(0), event.end_ns = row.integer(1);
                   event.lane = thread_lane(*to, row.integer(2));
                   event.correlation = correlation;
                   event.kind = SpanKind::kRuntime;
                   event.name = to->timeline.strings.intern(name(row.integer(4)));
                 }
               });
    if (others > 0) {
      warnings_.push_back(format("%lld CUDA calls of processes without device work are left out",
                                 static_cast<long long>(others)));
    }
  }

  void synchronisation() {
    file_.each(kSyncs,
               {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "syncType"},
               [&](const SqliteRow& row) {
                 // deviceId is not to be trusted here: it is 0 for processes of other cards.
                 const auto& drafts = drafts_of(process_of(row.integer(5)));
                 for (NsysDraft* to : drafts) {
                   if (drafts.size() > 1 && to->device != row.integer(2)) continue;
                   NsysEvent& event = to->events.emplace_back();
                   event.start_ns = row.integer(0), event.end_ns = row.integer(1);
                   event.lane = to->stream_lane(row.integer(3));
                   event.correlation = row.integer(4);
                   event.kind = SpanKind::kSync;
                   event.name = to->timeline.strings.intern(sync_name(row.integer(6)));
                 }
               });
  }

  void ranges() {
    int64_t open = 0;
    file_.each(kRanges,
               {"start", "end", "globalTid", "text", "textId", "jsonText", "jsonTextId"},
               [&](const SqliteRow& row) {
                 const std::string text = row.null(3) ? name(row.integer(4)) : row.text(3);
                 if (text.empty()) return;
                 if (row.null(1)) return void(++open);
                 const NvtxName parsed = nvtx_name(text);
                 for (NsysDraft* to : drafts_of(process_of(row.integer(2)))) {
                   NsysEvent& event = to->events.emplace_back();
                   event.start_ns = row.integer(0), event.end_ns = row.integer(1);
                   event.lane = thread_lane(*to, row.integer(2));
                   event.kind = parsed.kind;
                   event.name = to->timeline.strings.intern(parsed.name);
                   if (!parsed.shapes.empty())
                     event.shapes = to->timeline.strings.intern(parsed.shapes);
                   event.range = true;
                   if (text.starts_with("nccl")) {
                     event.message_bytes =
                         message_bytes(row.null(5) ? name(row.integer(6)) : row.text(5));
                   }
                 }
               });
    if (open > 0) {
      warnings_.push_back(
          format("%lld NVTX entries have no end (marks, names, ranges still open): left out",
                 static_cast<long long>(open)));
    }
  }

  void diagnostics() {
    std::map<std::string, int64_t> counts;
    file_.each("DIAGNOSTIC_EVENT", {"severity", "text"}, [&](const SqliteRow& row) {
      if (row.integer(0) == 2 || row.integer(0) == 3) ++counts[row.text(1).substr(0, 400)];
    });
    constexpr size_t kMost = 20;
    for (const auto& [text, count] : counts) {
      if (warnings_.size() >= kMost) break;
      warnings_.push_back(
          "the profiler says: " + text +
          (count > 1 ? format(" (%lld times)", static_cast<long long>(count)) : ""));
    }
  }

  // CUDA numbers the cards of a process; TARGET_INFO_GPU those of the machine.
  void devices() {
    struct Gpu {
      std::string name;
      int64_t memory = 0, processors = 0;
    };
    std::map<int64_t, Gpu> gpus;
    file_.each(
        "TARGET_INFO_GPU", {"id", "name", "totalMemory", "smCount"}, [&](const SqliteRow& row) {
          gpus[row.integer(0)] = {row.text(1), row.integer(2), row.integer(3)};
        });
    std::map<Key, int64_t> of_process;
    file_.each("TARGET_INFO_CUDA_DEVICE", {"gpuId", "cudaId", "pid"}, [&](const SqliteRow& row) {
      of_process[{row.integer(1), row.integer(2)}] = row.integer(0);
    });
    if (gpus.empty()) warnings_.push_back("the export does not name the GPUs");
    for (auto& [key, to] : drafts_) {
      const auto id = of_process.find(key);
      const auto gpu = gpus.find(id == of_process.end() ? key.first : id->second);
      if (gpu == gpus.end()) continue;
      auto& info = to.timeline.info;
      info["device"] = gpu->second.name;
      if (gpu->second.memory > 0) info["device.memory_bytes"] = std::to_string(gpu->second.memory);
      if (gpu->second.processors > 0) info["device.sms"] = std::to_string(gpu->second.processors);
    }
  }

  std::vector<RankTimeline> finish() {
    diagnostics();
    devices();
    int64_t anchor = 0;
    file_.each("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"}, [&](const SqliteRow& row) {
      anchor = row.integer(0);
    });
    std::string version;
    file_.each("META_DATA_EXPORT", {"name", "value"}, [&](const SqliteRow& row) {
      if (row.text(0) == "EXPORT_PRODUCT_VERSION") version = row.text(1);
    });
    const int32_t count = static_cast<int32_t>(drafts_.size());
    const int32_t named = count == 1 ? rank_in_file_name(path_) : -1;
    if (named < 0) {
      warnings_.push_back(
          count == 1 ? "the report does not name its rank: 0 is taken"
                     : format("the report names no ranks: its %d processes are numbered by device "
                              "and process",
                              count));
    }
    std::vector<RankTimeline> out;
    for (auto& [key, to] : drafts_) {
      RankTimeline& timeline = to.timeline;
      timeline.rank = named >= 0 ? named : static_cast<int32_t>(out.size());
      timeline.world_size = std::max(count, timeline.rank + 1);
      timeline.source = path_;
      timeline.wall_anchor_ns = anchor;
      timeline.warnings = warnings_;
      timeline.info["origin"] = "Nsight Systems";
      timeline.info["process"] = std::to_string(to.process);
      if (!version.empty()) timeline.info["nsys_version"] = version;
      if (in_graphs_ > 0) timeline.info["reader.graph_kernels"] = std::to_string(in_graphs_);
      to.finish();
      out.push_back(std::move(timeline));
    }
    return out;
  }

  const std::string path_;
  SqliteFile file_;
  std::unordered_map<int64_t, std::string> names_, thread_names_;
  std::map<Key, NsysDraft> drafts_;
  std::map<int64_t, std::vector<NsysDraft*>> of_process_;
  std::map<Key, int64_t> device_of_call_;  // (process, correlation)
  std::vector<std::string> warnings_;
  int64_t in_graphs_ = 0;
};

}  // namespace

std::vector<RankTimeline> read_nsys(const std::string& path) { return NsysReader(path).run(); }

}  // namespace vitrine
