// Process groups and every communication kernel, with what of it compute did not hide.
#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

#include "analysis/rank_parts.h"

namespace vitrine {
namespace {

int64_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {{"f32", 4},
                                                             {"bf16", 2},
                                                             {"f16", 2},
                                                             {"f64", 8},
                                                             {"i32", 4},
                                                             {"i64", 8},
                                                             {"u8", 1},
                                                             {"i8", 1},
                                                             {"bool", 1},
                                                             {"Long", 8},
                                                             {"Short", 2},
                                                             {"Char", 1},
                                                             {"Bool", 1},
                                                             {"Float8_e4m3fn", 1},
                                                             {"Float8_e5m2", 1}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) return size;
  }
  return 0;
}

// Where the trace gave no arguments: the kernel's name, else its kind.
std::string collective_name(SpanKind kind, const std::string& kernel) {
  std::string text;
  for (const char c : kernel) {
    if (c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::pair<std::string_view, const char*> kParts[] = {
      {"allgather", "all_gather"},
      {"reducescatter", "reduce_scatter"},
      {"allreduce", "all_reduce"},
      {"crossdevicereduce", "all_reduce"},
      {"broadcast", "broadcast"},
      {"alltoall", "all_to_all"},
      {"sendrecv", "send_receive"},
      {"dispatch", "all_to_all_v"},
      {"combine", "all_to_all_v"},
      {"reduce", "reduce"}};
  for (const auto& [part, name] : kParts) {
    if (text.find(part) != std::string::npos) return name;
  }
  if (kind == SpanKind::kGather) return "all_gather";
  if (kind == SpanKind::kSend) return "send";
  if (kind == SpanKind::kReceive) return "receive";
  return "";
}

class Groups {
 public:
  Groups(const RankTimeline& timeline, std::vector<GroupUse>& out)
      : timeline_(timeline), out_(out) {
    for (const ProcessGroup& group : timeline.groups) {
      const int32_t size = group.size > 0 ? group.size : static_cast<int32_t>(group.ranks.size());
      if (places_.try_emplace({group.name, group.ranks}, next()).second) {
        note(group.name, group.ranks);
        out_.push_back({group.name, group.description, group.ranks, size});
      }
    }
  }

  // A group by name alone is the declared one; other ranks under its name are another group.
  int32_t of(const Collective& collective) {
    const std::string& name = timeline_.strings[collective.group];
    if (name.empty() && collective.ranks.empty()) return -1;
    const int32_t known = declared(name, collective.ranks);
    if (known >= 0) return known;
    const auto [it, added] = places_.try_emplace({name, collective.ranks}, next());
    if (added) {
      const int32_t size = collective.group_size > 0
                               ? collective.group_size
                               : static_cast<int32_t>(collective.ranks.size());
      note(name, collective.ranks);
      out_.push_back({name, "", collective.ranks, size});
    }
    return it->second;
  }

 private:
  // The groups of one name, as places in `out_`.
  struct Named {
    int32_t first = -1, unlisted = -1;  // of those whose ranks are not known
    std::map<std::vector<int32_t>, int32_t> listed;
  };

  int32_t next() const { return static_cast<int32_t>(out_.size()); }
  void note(const std::string& name, const std::vector<int32_t>& ranks) {
    Named& named = named_[name];
    if (named.first < 0) named.first = next();
    if (!ranks.empty()) named.listed.emplace(ranks, next());
    if (ranks.empty() && named.unlisted < 0) named.unlisted = next();
  }
  int32_t declared(const std::string& name, const std::vector<int32_t>& ranks) {
    const auto known = named_.find(name);
    if (known == named_.end() || name.empty()) return -1;
    Named& named = known->second;
    if (ranks.empty()) return named.first;
    const auto same = named.listed.find(ranks);
    if (same != named.listed.end()) return same->second;
    if (named.unlisted < 0) return -1;
    GroupUse& group = out_[static_cast<size_t>(named.unlisted)];
    group.ranks = ranks, group.size = static_cast<int32_t>(ranks.size());
    named.listed.emplace(ranks, named.unlisted);
    return std::exchange(named.unlisted, -1);
  }

  const RankTimeline& timeline_;
  std::vector<GroupUse>& out_;
  std::map<std::pair<std::string, std::vector<int32_t>>, int32_t> places_;
  std::map<std::string, Named> named_;
};

// Of `interval`, what no compute covers. `first` moves on with intervals in order of begin.
int64_t exposed(const std::vector<Interval>& compute, Interval interval, size_t& first) {
  while (first < compute.size() && compute[first].end <= interval.begin) ++first;
  int64_t out = std::max<int64_t>(0, interval.end - interval.begin);
  for (size_t i = first; i < compute.size() && compute[i].begin < interval.end; ++i) {
    out -= std::min(compute[i].end, interval.end) - std::max(compute[i].begin, interval.begin);
  }
  return out;
}

}  // namespace

void measure_collectives(const RankParts& view, RankFacts& out) {
  const Spans& spans = view.timeline.spans;
  Groups groups(view.timeline, out.groups);
  std::map<StringId, std::string> names;
  size_t first = 0;
  for (const DeviceSpan& span : view.device) {
    if (span.use != DeviceUse::kCommunication) continue;
    CollectiveUse use;
    use.start_ns = span.begin, use.duration_ns = span.end - span.begin;
    use.exposed_ns = exposed(view.sets.compute.intervals(), {span.begin, span.end}, first);
    if (const Launch* launch = view.launch(span)) use.launch_ns = launch->begin;
    use.lane = spans.lane[span.span], use.step = spans.step[span.span];
    use.micro_batch = spans.micro_batch[span.span], use.phase = span.phase;
    if (const int32_t index = spans.collective[span.span]; index >= 0) {
      const Collective& collective = view.timeline.collectives[static_cast<size_t>(index)];
      use.name = view.timeline.strings[collective.name];
      use.group = groups.of(collective);
      use.sequence = collective.sequence, use.peer = collective.peer;
      use.sent_bytes = collective.sent_bytes;
      use.bytes = std::max(collective.in_elements, collective.out_elements) *
                  element_bytes(view.timeline.strings[collective.dtype]);
    }
    if (use.name.empty()) {
      const auto [it, added] = names.try_emplace(spans.name[span.span]);
      if (added) it->second = collective_name(spans.kind[span.span], view.name(span));
      use.name = it->second;
    }
    out.collectives.push_back(std::move(use));
  }
}

}  // namespace vitrine
