// The stream of events, read once, without building a tree of it.
#include "readers/kineto.h"

#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "core/error.h"
#include "core/format.h"
#include "core/memory_ledger.h"
#include "readers/decimal.h"
#include "readers/kineto_finish.h"
#include "readers/kineto_header.h"
#include "readers/kineto_names.h"
#include "readers/zipped_text.h"

namespace vitrine {
namespace {

using namespace kineto_json;

// The arguments that are read; views live as long as the parser's document.
struct Args {
  std::string_view kind, label, block, name, labels;
  std::string_view collective, dtype, group, ranks;
  int64_t correlation = 0, bytes = 0, step = -1, micro_batch = -1;
  int64_t in_elements = -1, out_elements = -1, group_size = -1, sequence = -1, peer = -1,
          sent_bytes = -1;
  int64_t allocated = -1, reserved = -1, device = 0;
  std::vector<std::pair<std::string_view, double>> numbers;  // of counters
};

struct Event {
  char phase = 0;
  std::string_view category, name, pid, tid, ts, duration;
};

class Reader {
 public:
  Reader(const std::string& path, const KinetoOptions& options) : path_(path), options_(options) {
    draft_.timeline.source = std::filesystem::path(path).filename().string();
  }

  RankTimeline read() {
    text_ = read_zipped_text(path_, simdjson::SIMDJSON_PADDING);
    const size_t size = text_.size() - simdjson::SIMDJSON_PADDING;
    simdjson::ondemand::parser parser;
    simdjson::ondemand::document document;
    bool begun = false;
    try {
      document = parser.iterate(text_.data(), size, text_.size());
      begun = true;
      read_document(document);
    } catch (const simdjson::simdjson_error& error) {
      const char* at = nullptr;
      const bool known = begun && document.current_location().get(at) == simdjson::SUCCESS;
      fail(error.what(), known ? static_cast<size_t>(at - text_.data()) : size, size);
    }
    if (!events_found_) {
      throw IoError(
          path_ +
          " is JSON, but no trace: it has no \"traceEvents\" (expected Chrome-trace JSON of "
          "PyTorch Profiler or of vitrine train)");
    }
    RankTimeline& timeline = draft_.timeline;
    timeline.wall_anchor_ns = base_ns_;
    if (!draft_.rank_known) timeline.rank = rank_from_name();
    if (skipped_ > 0) timeline.info["reader.skipped"] = std::to_string(skipped_);
    if (negative_ > 0) timeline.info["reader.negative_durations"] = std::to_string(negative_);
    return finish_kineto(std::move(draft_));
  }

 private:
  [[noreturn]] void fail(const std::string& what, size_t at, size_t size) const {
    at = std::min(at, size);
    const auto begin = text_.begin(), end = begin + static_cast<ptrdiff_t>(at);
    const auto line = std::count(begin, end, '\n') + 1;
    throw IoError(format(
        "%s is not whole JSON: line %lld (byte %zu of %zu): %s; was it cut, or is it another kind "
        "of file?",
        path_.c_str(),
        static_cast<long long>(line),
        at,
        size,
        what.c_str()));
  }

  // "rank-70.Mar_25...", "rank3.json.gz", "worker0_step_12..." -> the number.
  int32_t rank_from_name() const {
    std::smatch match;
    const std::string name = draft_.timeline.source;
    static const std::regex pattern("(?:rank|worker)[-_]?([0-9]{1,8})");
    return std::regex_search(name, match, pattern) ? std::stoi(match[1]) : 0;
  }

  void read_document(simdjson::ondemand::document& document) {
    const JsonType type = document.type();
    if (type == JsonType::array) {  // the bare list of old viewers
      events_found_ = true;
      for (Value event : document.get_array()) read_event(event);
      return;
    }
    if (type != JsonType::object) return;
    for (auto field : document.get_object()) {
      const std::string_view key = field.unescaped_key();
      Value value = field.value();
      if (key == "traceEvents" && value.type() == JsonType::array) {
        events_found_ = true;
        for (Value event : value.get_array()) read_event(event);
      } else if (key == "baseTimeNanoseconds" && scalar(value)) {
        base_ns_ = first_integer(text_of(value));
      } else if (key == "distributedInfo" && value.type() == JsonType::object) {
        read_kineto_ranks(value.get_object(), draft_);
      } else if (key == "deviceProperties") {
        read_kineto_devices(value, draft_.timeline);
      } else if (key == "vitrine" && value.type() == JsonType::object) {
        draft_.own = true;
        for (auto entry : value.get_object()) {
          const std::string name(entry.unescaped_key().value());
          Value text = entry.value();
          if (scalar(text)) draft_.timeline.info[name] = text_of(text);
        }
      } else if (key == "traceName" && scalar(value)) {
        trace_name_ = text_of(value);
      } else if ((key == "cuda_runtime_version" || key == "cuda_driver_version" ||
                  key == "hip_runtime_version") &&
                 scalar(value)) {
        draft_.timeline.info[std::string(key)] = text_of(value);
      }
    }
    if (draft_.own) draft_.timeline.source = trace_name_;
  }

  void read_event(Value value) {
    if (value.type() != JsonType::object) {
      ++skipped_;
      return;
    }
    Object object = value.get_object();
    Event event;
    args_ = Args{};
    bool args_too_early = false;
    for (auto field : object) {
      const std::string_view key = field.unescaped_key();
      Value item = field.value();
      if (key == "args") {
        // Which arguments matter depends on keys that stand before them in every known writer.
        if (event.phase == 0 || event.name.data() == nullptr) {
          args_too_early = true;
        } else if (wants_args(event) && item.type() == JsonType::object) {
          read_args(event, item.get_object());
        }
        continue;
      }
      if (key == "ph") {
        const std::string_view phase = text_of(item);
        event.phase = phase.empty() ? ' ' : phase[0];
      } else if (key == "cat") {
        event.category = text_of(item);
      } else if (key == "name" && scalar(item)) {
        event.name = text_of(item);
      } else if (key == "pid") {
        event.pid = text_of(item);
      } else if (key == "tid") {
        event.tid = text_of(item);
      } else if (key == "ts") {
        event.ts = text_of(item);
      } else if (key == "dur") {
        event.duration = text_of(item);
      }
    }
    if (args_too_early && wants_args(event)) {
      object.reset();
      Value item;
      if (object.find_field_unordered("args").get(item) == simdjson::SUCCESS &&
          item.type() == JsonType::object) {
        read_args(event, item.get_object());
      }
      // Leaves the iteration at the end of this event, where the list goes on.
      object.reset();
      for (auto field : object) field.value().value();
    }
    take(event);
  }

  bool wants_args(const Event& event) const {
    switch (event.phase) {
      case 'X':
        return options_.python_functions || event.category != "python_function";
      case 'M':
        return event.name == "thread_name";
      case 'C':
        return true;
      case 'i':
      case 'I':
        return event.name == "[memory]";
      default:
        return false;
    }
  }

  void read_args(const Event& event, Object object) {
    for (auto field : object) {
      const std::string_view key = field.unescaped_key();
      Value value = field.value();
      if (!scalar(value)) continue;
      if (event.phase == 'C') {
        double number = 0;
        if (value.get_double().get(number) == simdjson::SUCCESS)
          args_.numbers.emplace_back(key, number);
        continue;
      }
      if (std::string_view* text = text_arg(key)) {
        *text = text_of(value);
      } else if (int64_t* number = number_arg(key)) {
        *number = first_integer(text_of(value));
      }
    }
  }
  std::string_view* text_arg(std::string_view key) {
    if (key.size() < 4 || key.size() > 19) return nullptr;
    if (key == "Kind") return &args_.kind;
    if (key == "Label") return &args_.label;
    if (key == "Block") return &args_.block;
    if (key == "name") return &args_.name;
    if (key == "Collective name") return &args_.collective;
    if (key == "dtype") return &args_.dtype;
    if (key == "Process Group Name") return &args_.group;
    if (key == "Process Group Ranks") return &args_.ranks;
    return nullptr;
  }
  int64_t* number_arg(std::string_view key) {
    if (key == "correlation") return &args_.correlation;
    if (key == "bytes") return &args_.bytes;
    if (key == "Step") return &args_.step;
    if (key == "Micro batch") return &args_.micro_batch;
    if (key == "In msg nelems") return &args_.in_elements;
    if (key == "Out msg nelems") return &args_.out_elements;
    if (key == "Group size") return &args_.group_size;
    if (key == "Seq") return &args_.sequence;
    if (key == "Src Rank" || key == "Dst Rank") return &args_.peer;
    if (key == "Sent bytes") return &args_.sent_bytes;
    if (key == "Total Allocated") return &args_.allocated;
    if (key == "Total Reserved") return &args_.reserved;
    if (key == "Device Id") return &args_.device;
    return nullptr;
  }

  void take(const Event& event) {
    if (event.phase == 'M' && event.name == "thread_name") {
      draft_.thread_names[{std::string(event.pid), std::string(event.tid)}] = args_.name;
      return;
    }
    const bool complete = event.phase == 'X', counter = event.phase == 'C';
    const bool memory = (event.phase == 'i' || event.phase == 'I') && event.name == "[memory]";
    if (!complete && !counter && !memory) return;
    int64_t start = 0, duration = 0;
    if (event.name.data() == nullptr || !microseconds_to_ns(event.ts, start) ||
        (!event.duration.empty() && !microseconds_to_ns(event.duration, duration))) {
      ++skipped_;
      return;
    }
    if (complete) return take_span(event, start, duration);
    if (counter) return take_counter(event, start);
    if (draft_.own) return;  // said again, by category, by a counter
    const std::string device =
        args_.device < 0 ? " (cpu)" : " (device " + std::to_string(args_.device) + ")";
    if (args_.allocated >= 0)
      add_counter(start, "allocated bytes" + device, static_cast<double>(args_.allocated));
    if (args_.reserved >= 0)
      add_counter(start, "reserved bytes" + device, static_cast<double>(args_.reserved));
  }

  void add_counter(int64_t time, const std::string& name, double value) {
    draft_.timeline.counters.push_back({time, draft_.timeline.strings.intern(name), value});
  }

  void take_counter(const Event& event, int64_t time) {
    if (draft_.own && event.name == "memory by category") {
      MemorySample sample{time, {}};
      for (const auto& [key, value] : args_.numbers) {
        for (int c = 0; c < kMemoryCategories; ++c) {
          if (key == memory_category_name(static_cast<MemoryCategory>(c))) {
            sample.bytes[static_cast<size_t>(c)] = static_cast<int64_t>(value);  // exact up to 2^53
          }
        }
      }
      draft_.timeline.memory.push_back(sample);
      return;
    }
    for (const auto& [key, value] : args_.numbers) {
      const std::string name(event.name);
      add_counter(time, key == "value" ? name : name + ": " + std::string(key), value);
    }
  }

  int32_t lane(const Event& event, bool device) {
    if (last_lane_ >= 0) {
      const auto& key = draft_.lane_keys[static_cast<size_t>(last_lane_)];
      if (key.pid == event.pid && key.tid == event.tid) return mark(last_lane_, device);
    }
    for (size_t i = 0; i < draft_.lane_keys.size(); ++i) {
      const auto& key = draft_.lane_keys[i];
      if (key.tid == event.tid && key.pid == event.pid)
        return mark(static_cast<int32_t>(i), device);
    }
    draft_.lane_keys.push_back({std::string(event.pid), std::string(event.tid)});
    draft_.timeline.lanes.push_back({"", device, first_integer(event.tid)});
    return mark(static_cast<int32_t>(draft_.lane_keys.size()) - 1, device);
  }
  int32_t mark(int32_t lane, bool device) {
    if (device) draft_.timeline.lanes[static_cast<size_t>(lane)].device = true;
    return last_lane_ = lane;
  }

  void take_span(const Event& event, int64_t start, int64_t duration) {
    const KinetoCategory category = kineto_category(event.category);
    if (category == KinetoCategory::kIgnored) return;
    if (category == KinetoCategory::kPython && !options_.python_functions) return;
    if (draft_.own && args_.kind.empty()) return;  // a launch that the writer made up
    if (duration < 0) {
      ++negative_;
      duration = 0;
    }
    RankTimeline& timeline = draft_.timeline;
    const int32_t index = lane(event, on_device(category));
    Spans& spans = timeline.spans;
    spans.start_ns.push_back(start);
    spans.duration_ns.push_back(duration);
    spans.lane.push_back(index);
    spans.correlation.push_back(args_.correlation);
    spans.bytes.push_back(args_.bytes);
    spans.shapes.push_back(kNoString);
    spans.step.push_back(static_cast<int32_t>(args_.step));
    spans.micro_batch.push_back(static_cast<int32_t>(args_.micro_batch));
    spans.block.push_back(timeline.strings.intern(std::string(args_.block)));
    spans.name.push_back(timeline.strings.intern(std::string(event.name)));
    spans.collective.push_back(-1);
    if (draft_.own) {
      take_own(event, category);
    } else {
      take_foreign(event, category, start, duration, index);
    }
  }

  // Our writer's names differ from the spans' where tools look for words of their own.
  void take_own(const Event& event, KinetoCategory category) {
    Spans& spans = draft_.timeline.spans;
    SpanKind kind = SpanKind::kHost;
    try {
      kind = span_kind_from_name(std::string(args_.kind));
    } catch (const ConfigError&) {  // a kind of a newer version
    }
    spans.kind.push_back(kind);
    std::string_view name = event.name;
    const auto strip = [&name](std::string_view before, std::string_view after) {
      if (name.size() >= before.size() + after.size() && name.starts_with(before) &&
          name.ends_with(after)) {
        name = name.substr(before.size(), name.size() - before.size() - after.size());
      }
    };
    if (kind == SpanKind::kStep && category == KinetoCategory::kAnnotation) name = "step";
    if (kind == SpanKind::kData && category == KinetoCategory::kAnnotation)
      strip("DataLoader: ", "");
    if (kind == SpanKind::kCopy && category == KinetoCategory::kCopy) strip("Memcpy (", ")");
    if (kind == SpanKind::kDisk && category == KinetoCategory::kCopy) strip("Memcpy disk (", ")");
    if (!args_.label.empty()) name = args_.label;
    spans.name.back() = draft_.timeline.strings.intern(std::string(name));
    if (!args_.collective.empty()) spans.collective.back() = add_collective();
  }

  void take_foreign(
      const Event& event, KinetoCategory category, int64_t start, int64_t duration, int32_t lane) {
    Spans& spans = draft_.timeline.spans;
    spans.kind.push_back(foreign_kind(event, category));
    if (category == KinetoCategory::kKernel && spans.kind.back() != SpanKind::kKernel &&
        !args_.collective.empty()) {
      spans.collective.back() = add_collective();
    }
    if (category == KinetoCategory::kRuntime && args_.correlation != 0) {
      draft_.launches.emplace(args_.correlation, KinetoDraft::Call{lane, start});
    }
    if (event.name == "record_param_comms" && !args_.collective.empty() &&
        args_.collective != "wait") {
      draft_.announcements.push_back({lane, start, start + duration, add_collective()});
    }
    constexpr std::string_view kStepName = "ProfilerStep#";
    if ((category == KinetoCategory::kAnnotation || category == KinetoCategory::kOperator) &&
        event.name.starts_with(kStepName)) {
      spans.kind.back() = SpanKind::kStep;
      spans.step.back() = static_cast<int32_t>(first_integer(event.name.substr(kStepName.size())));
    }
  }

  SpanKind foreign_kind(const Event& event, KinetoCategory category) {
    switch (category) {
      case KinetoCategory::kKernel:
        if (!args_.collective.empty())
          return collective_kind(collective_from_c10d(args_.collective));
        return kernel_kind(draft_.timeline.spans.name.back(), event.name);
      case KinetoCategory::kCopy:
        return SpanKind::kCopy;
      case KinetoCategory::kDeviceSync:
        return SpanKind::kSync;
      case KinetoCategory::kDeviceAnnotation:
        return SpanKind::kRegion;
      case KinetoCategory::kOperator:
        return is_data_loading(event.name) ? SpanKind::kData : SpanKind::kOperation;
      case KinetoCategory::kRuntime:
        return SpanKind::kRuntime;
      case KinetoCategory::kAnnotation:
        return is_data_loading(event.name) ? SpanKind::kData : SpanKind::kRegion;
      default:
        return SpanKind::kHost;
    }
  }

  // By the kernel's name, looked at once a name.
  SpanKind kernel_kind(StringId id, std::string_view name) {
    if (kernel_kinds_.size() <= id) kernel_kinds_.resize(id + 1, SpanKind::kStep);
    SpanKind& kind = kernel_kinds_[id];
    if (kind == SpanKind::kStep) {
      kind = is_communication_kernel(name) ? collective_kind(collective_from_kernel(name))
                                           : SpanKind::kKernel;
    }
    return kind;
  }

  int32_t add_collective() {
    RankTimeline& timeline = draft_.timeline;
    Collective out;
    const std::string name = collective_from_c10d(args_.collective),
                      dtype = dtype_from_c10d(args_.dtype);
    out.name = timeline.strings.intern(name);
    out.dtype = timeline.strings.intern(dtype);
    out.group = timeline.strings.intern(std::string(args_.group));
    out.ranks = ranks_of_text(args_.ranks);
    out.sequence = args_.sequence;
    out.in_elements = std::max<int64_t>(0, args_.in_elements);
    out.out_elements = std::max<int64_t>(0, args_.out_elements);
    out.peer = static_cast<int32_t>(args_.peer);
    out.sent_bytes =
        args_.sent_bytes >= 0
            ? args_.sent_bytes
            : ring_sent_bytes(
                  name, out.in_elements, out.out_elements, dtype_size(dtype), args_.group_size);
    timeline.collectives.push_back(std::move(out));
    return static_cast<int32_t>(timeline.collectives.size()) - 1;
  }

  const std::string path_;
  const KinetoOptions options_;
  std::string text_, trace_name_;
  KinetoDraft draft_;
  Args args_;
  std::vector<SpanKind> kernel_kinds_;  // by StringId of the name; kStep = not looked at yet
  int64_t base_ns_ = 0, skipped_ = 0, negative_ = 0;
  int32_t last_lane_ = -1;
  bool events_found_ = false;
};

}  // namespace

RankTimeline read_kineto(const std::string& path, const KinetoOptions& options) {
  return Reader(path, options).read();
}

}  // namespace vitrine
