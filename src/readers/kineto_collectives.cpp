// Walks launches and announced collectives of each host thread side by side.
#include "readers/kineto_collectives.h"

#include <algorithm>
#include <map>

#include "readers/kineto_names.h"

namespace vitrine {
namespace {

// Bounded, so that a batch of any length fits.
int64_t together(int64_t a, int64_t b) {
  return std::min(a, Amounts::kMost) + std::min(b, Amounts::kMost);
}

class CollectiveFinder {
 public:
  CollectiveFinder(KinetoDraft& draft, const KinetoLaunches& launches)
      : draft_(draft), launches_(launches) {
    for (const auto& call : draft.announcements) calls_[call.lane].push_back(call);
    for (auto& [lane, calls] : calls_) {
      std::stable_sort(calls.begin(), calls.end(), [](const auto& x, const auto& y) {
        return x.start_ns < y.start_ns;
      });
    }
  }

  void run() {
    const Spans& spans = draft_.timeline.spans;
    std::vector<std::pair<uint32_t, uint32_t>> kernels;  // launch, kernel
    for (size_t i = 0; i < spans.size(); ++i) {
      if (!is_communication(spans.kind[i])) continue;
      if (!draft_.timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
      const uint32_t launch = launches_.launch_of(i);
      if (launch != KinetoLaunches::kNone) kernels.emplace_back(launch, static_cast<uint32_t>(i));
    }
    std::stable_sort(kernels.begin(), kernels.end(), [](const auto& x, const auto& y) {
      return x.first < y.first;  // spans are sorted by start
    });
    for (const auto& [launch, kernel] : kernels) find(launch, kernel);
  }

 private:
  void find(uint32_t launch, uint32_t kernel) {
    const Spans& spans = draft_.timeline.spans;
    const int64_t launched = spans.start_ns[launch];
    const auto& calls = calls_[spans.lane[launch]];
    size_t& next = next_[spans.lane[launch]];
    const size_t first = next;
    while (next < calls.size() && calls[next].start_ns <= launched) ++next;
    if (spans.collective[kernel] >= 0 || next == 0) return;
    if (calls[next - 1].end_ns >= launched) return give(kernel, copy(calls[next - 1]));
    Collective batch;
    bool send = false, receive = false;
    for (size_t i = first; i < next; ++i) {
      const Collective call = copy(calls[i]);
      const SpanKind kind = collective_kind(draft_.timeline.strings[call.name]);
      if (kind != SpanKind::kSend && kind != SpanKind::kReceive) return;
      const bool sends = kind == SpanKind::kSend;
      const int64_t sent = together(batch.sent_bytes, call.sent_bytes);
      const int64_t in = together(batch.in_elements, sends ? call.in_elements : 0);
      const int64_t out = together(batch.out_elements, sends ? 0 : call.out_elements);
      batch = call;
      batch.sent_bytes = sent, batch.in_elements = in, batch.out_elements = out;
      (kind == SpanKind::kSend ? send : receive) = true;
    }
    if (send && receive) batch.name = draft_.timeline.strings.intern("send_receive");
    if (send || receive) give(kernel, batch);
  }

  Collective copy(const KinetoDraft::Announcement& call) const {
    return draft_.timeline.collectives[static_cast<size_t>(call.collective)];
  }
  void give(size_t span, Collective collective) {
    RankTimeline& timeline = draft_.timeline;
    timeline.spans.kind[span] = collective_kind(timeline.strings[collective.name]);
    timeline.spans.collective[span] = static_cast<int32_t>(timeline.collectives.size());
    timeline.collectives.push_back(std::move(collective));
  }

  KinetoDraft& draft_;
  const KinetoLaunches& launches_;
  std::map<int32_t, std::vector<KinetoDraft::Announcement>> calls_;  // by host lane
  std::map<int32_t, size_t> next_;  // the first call after the last launch
};

// Announcements are no collectives of their own: only what a span points at stays.
void drop_unused(RankTimeline& timeline) {
  std::vector<Collective> kept;
  for (int32_t& index : timeline.spans.collective) {
    if (index < 0) continue;
    kept.push_back(std::move(timeline.collectives[static_cast<size_t>(index)]));
    index = static_cast<int32_t>(kept.size()) - 1;
  }
  timeline.collectives = std::move(kept);
}

}  // namespace

void find_collectives(KinetoDraft& draft, const KinetoLaunches& launches) {
  CollectiveFinder(draft, launches).run();
}

// After sorting: the order of spans is the order on each lane.
void number_collectives(KinetoDraft& draft) {
  RankTimeline& timeline = draft.timeline;
  std::map<std::string, const ProcessGroup*> groups;
  for (const ProcessGroup& group : timeline.groups) groups.emplace(group.name, &group);
  std::map<std::pair<StringId, int32_t>, int64_t> next;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    if (timeline.spans.collective[i] < 0) continue;
    Collective& collective =
        timeline.collectives[static_cast<size_t>(timeline.spans.collective[i])];
    if (collective.ranks.empty() || collective.group_size < 0) {
      const auto it = groups.find(timeline.strings[collective.group]);
      if (it != groups.end()) {
        const ProcessGroup& group = *it->second;
        if (collective.ranks.empty() && group.ranks.size() <= kMostRanksACollective)
          collective.ranks = group.ranks;
        if (collective.group_size < 0 && group.size > 0) collective.group_size = group.size;
      }
    }
    int64_t& number = next[{collective.group, timeline.spans.lane[i]}];
    if (collective.sequence < 0) collective.sequence = number;
    ++number;
  }
  drop_unused(timeline);
}

}  // namespace vitrine
