// Lanes, attribution and order of device records.
#include "gpu/gpu_records.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_set>

namespace vitrine {

namespace {

using Kind = GpuRecord::Kind;

bool on_device(Kind kind) {
  return kind == Kind::kKernel || kind == Kind::kCopy || kind == Kind::kSet;
}

// Calls that cost a few hundred nanoseconds, are made by the thousand and launch nothing.
bool is_query(std::string_view name) {
  for (const char* query : {"cudaGetDevice",
                            "cudaSetDevice",
                            "cudaGetLastError",
                            "cudaPeekAtLastError",
                            "cudaStreamIsCapturing",
                            "cudaEventQuery",
                            "cudaStreamGetCaptureInfo",
                            "cudaThreadExchangeStreamCaptureMode",
                            "cudaDeviceGetAttribute",
                            "cudaFuncSetAttribute",
                            "cudaOccupancyMaxActiveBlocksPerMultiprocessor"}) {
    if (name.starts_with(query)) return true;
  }
  return false;
}

SpanKind kernel_kind(std::string_view name) {
  if (name.find("nccl") == std::string_view::npos) return SpanKind::kKernel;
  if (name.find("AllGather") != std::string_view::npos) return SpanKind::kGather;
  if (name.find("ReduceScatter") != std::string_view::npos) return SpanKind::kReduce;
  return SpanKind::kCollective;
}

class Adder {
 public:
  Adder(const GpuRecords& gpu, const std::vector<GpuWork>& works, RankTimeline& timeline)
      : gpu_(gpu), works_(works), timeline_(timeline) {
    for (Lane& lane : timeline_.lanes) lane.device = false;
    index_host();
    for (const GpuRecord& record : gpu_.records) {
      if (on_device(record.kind)) launched_.insert(record.correlation);
      if (record.kind != Kind::kCall) continue;
      // A runtime call and the driver's inside it may share their number: the outer one launched.
      if (record.driver)
        calls_.emplace(record.correlation, &record);
      else
        calls_[record.correlation] = &record;
    }
  }

  void add() {
    for (const GpuRecord& record : gpu_.records) {
      if (on_device(record.kind)) {
        add_device(record);
      } else if (record.kind == Kind::kSync) {
        add_sync(record);
      } else if (is_kept(record)) {
        const GpuWork* work = work_of(record);
        push(record, SpanKind::kRuntime, call_lane(record, work), work);
        timeline_.spans.correlation.back() = record.correlation;
      }
    }
    sort();
    timeline_.info["gpu_trace.records"] = std::to_string(gpu_.records.size());
    timeline_.info["gpu_trace.dropped"] = std::to_string(gpu_.dropped);
  }

 private:
  bool is_kept(const GpuRecord& call) const {
    if (calls_.at(call.correlation) != &call) return !call.driver && !is_query(call.name);
    return launched_.contains(call.correlation) || !(call.driver || is_query(call.name));
  }

  struct HostSpan {
    int64_t start_ns, end_ns;
    int32_t value;  // a step, or an index of a collective
  };

  void index_host() {
    const Spans& spans = timeline_.spans;
    for (size_t i = 0; i < spans.size(); ++i) {
      const int64_t end = spans.start_ns[i] + spans.duration_ns[i];
      if (spans.kind[i] == SpanKind::kStep) {
        steps_.push_back({spans.start_ns[i], end, spans.step[i]});
      } else if (spans.collective[i] >= 0) {
        collectives_[spans.lane[i]].push_back({spans.start_ns[i], end, spans.collective[i]});
      }
    }
  }

  // The value of the last span that began by `time` and holds it, or -1. `spans` are by start.
  static int32_t value_at(const std::vector<HostSpan>& spans, int64_t time) {
    auto it = std::upper_bound(spans.begin(), spans.end(), time, [](int64_t t, const HostSpan& s) {
      return t < s.start_ns;
    });
    if (it == spans.begin() || std::prev(it)->end_ns < time) return -1;
    return std::prev(it)->value;
  }

  const GpuWork* work_of(const GpuRecord& record) const {
    const auto it = gpu_.work_of.find(record.correlation);
    if (it == gpu_.work_of.end() || it->second == 0 || it->second > works_.size()) return nullptr;
    return &works_[it->second - 1];
  }

  int32_t lane(const std::string& name, bool device, int64_t tid, int32_t device_index) {
    const auto [it, fresh] = lanes_.emplace(name, static_cast<int32_t>(timeline_.lanes.size()));
    if (fresh) timeline_.lanes.push_back({name, device, tid, device_index});
    return it->second;
  }
  int32_t call_lane(const GpuRecord& record, const GpuWork* work) {
    if (work && work->lane >= 0) return work->lane;
    // Behind the recorder's own numbers, which are small.
    return lane("thread " + std::to_string(record.thread), false, record.thread, -1);
  }

  void push(const GpuRecord& record, SpanKind kind, int32_t lane, const GpuWork* work) {
    Spans& s = timeline_.spans;
    s.start_ns.push_back(record.start_ns);
    s.duration_ns.push_back(std::max<int64_t>(0, record.end_ns - record.start_ns));
    s.name.push_back(timeline_.strings.intern(record.name));
    s.kind.push_back(kind);
    s.lane.push_back(lane);
    s.step.push_back(work ? work->step : -1);
    s.micro_batch.push_back(work ? work->micro_batch : -1);
    s.block.push_back(work ? work->block : kNoString);
    s.collective.push_back(-1);
    s.correlation.push_back(0);
    s.bytes.push_back(record.bytes);
    s.shapes.push_back(kNoString);
  }

  void add_device(const GpuRecord& record) {
    const GpuWork* work = work_of(record);
    const SpanKind kind = record.kind == Kind::kKernel ? kernel_kind(record.name) : SpanKind::kCopy;
    const int32_t stream = lane("stream " + std::to_string(record.stream),
                                true,
                                record.stream,
                                static_cast<int32_t>(record.device));
    push(record, kind, stream, work);
    Spans& s = timeline_.spans;
    s.correlation.back() = record.correlation;
    const auto call = calls_.find(record.correlation);
    const int64_t launched = call != calls_.end() ? call->second->start_ns : record.start_ns;
    if (s.step.back() < 0) s.step.back() = value_at(steps_, launched);
    const bool between_gpus = record.name.starts_with("Memcpy PtoP");
    if ((is_communication(kind) || between_gpus) && work) {
      const auto host = collectives_.find(work->lane);
      if (host != collectives_.end()) s.collective.back() = value_at(host->second, launched);
      s.kind.back() = kind_of(s.collective.back(), kind);
      if (between_gpus) s.collective.back() = share_of(s.collective.back(), record.bytes);
    }
  }

  // NCCL has one kernel for sends and receives, and copies between GPUs have no name of a
  // collective; the host knows what it was.
  SpanKind kind_of(int32_t collective, SpanKind otherwise) const {
    if (collective < 0) return otherwise;
    const std::string& name =
        timeline_.strings[timeline_.collectives[static_cast<size_t>(collective)].name];
    if (name == "all_gather") return SpanKind::kGather;
    if (name == "reduce_scatter") return SpanKind::kReduce;
    if (name == "send") return SpanKind::kSend;
    if (name == "receive") return SpanKind::kReceive;
    return otherwise;
  }

  // A copy that is one of several of its collective stands for as much of it as it moves.
  int32_t share_of(int32_t collective, int64_t bytes) {
    if (collective < 0) return collective;
    Collective part = timeline_.collectives[static_cast<size_t>(collective)];
    if (bytes <= 0 || bytes >= part.sent_bytes) return collective;
    const auto whole = static_cast<double>(part.sent_bytes);
    const auto share = [&](int64_t elements) {
      return std::llround(static_cast<double>(elements) * static_cast<double>(bytes) / whole);
    };
    part.in_elements = share(part.in_elements);
    part.out_elements = share(part.out_elements);
    part.sent_bytes = bytes;
    timeline_.collectives.push_back(std::move(part));
    return static_cast<int32_t>(timeline_.collectives.size()) - 1;
  }

  // A host wait, on the lane of the call that waited.
  void add_sync(const GpuRecord& record) {
    const auto call = calls_.find(record.correlation);
    if (call == calls_.end()) return;
    const GpuWork* work = work_of(record);
    push(record, SpanKind::kSync, call_lane(*call->second, work), work);
  }

  template <typename T>
  static void permute(std::vector<T>& values, const std::vector<size_t>& order) {
    std::vector<T> sorted;
    sorted.reserve(values.size());
    for (const size_t i : order) sorted.push_back(values[i]);
    values = std::move(sorted);
  }

  // By start, a parent before its children, as Recorder::take().
  void sort() {
    Spans& s = timeline_.spans;
    std::vector<size_t> order(s.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (s.start_ns[a] != s.start_ns[b]) return s.start_ns[a] < s.start_ns[b];
      return s.duration_ns[a] > s.duration_ns[b];
    });
    permute(s.start_ns, order);
    permute(s.duration_ns, order);
    permute(s.name, order);
    permute(s.kind, order);
    permute(s.lane, order);
    permute(s.step, order);
    permute(s.micro_batch, order);
    permute(s.block, order);
    permute(s.collective, order);
    permute(s.correlation, order);
    permute(s.bytes, order);
    permute(s.shapes, order);
  }

  const GpuRecords& gpu_;
  const std::vector<GpuWork>& works_;
  RankTimeline& timeline_;
  std::vector<HostSpan> steps_;
  std::map<int32_t, std::vector<HostSpan>> collectives_;  // by lane
  std::unordered_set<uint32_t> launched_;                 // correlations with device work
  std::unordered_map<uint32_t, const GpuRecord*> calls_;  // by correlation
  std::map<std::string, int32_t> lanes_;
};

}  // namespace

void add_gpu_records(const GpuRecords& gpu,
                     const std::vector<GpuWork>& works,
                     RankTimeline& timeline) {
  Adder(gpu, works, timeline).add();
}

}  // namespace vitrine
