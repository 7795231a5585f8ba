// Compute at a coarse grain: neighbours of one phase and micro-batch become one piece.
#include <algorithm>

#include "analysis/rank_parts.h"

namespace vitrine {
namespace {

constexpr size_t kMostPieces = 20000;
constexpr int64_t kSmallGapNs = 20000;

struct Outline {
  std::vector<WorkPiece> pieces;
  std::vector<int64_t> transfers;  // begins of sends and receives

  bool transfer_between(int64_t begin, int64_t end) const {
    const auto it = std::lower_bound(transfers.begin(), transfers.end(), begin);
    return it != transfers.end() && *it <= end;
  }
  bool joins(const WorkPiece& last, const WorkPiece& next, int64_t gap) const {
    if (last.phase != next.phase || last.micro_batch != next.micro_batch) return false;
    if (next.begin_ns <= last.end_ns) return true;
    return next.begin_ns - last.end_ns <= gap && !transfer_between(last.end_ns, next.begin_ns);
  }
  void add(std::vector<WorkPiece>& to, const WorkPiece& next, int64_t gap) const {
    if (to.empty() || !joins(to.back(), next, gap)) return to.push_back(next);
    WorkPiece& last = to.back();
    // What overlaps the piece before it was counted there.
    last.busy_ns += std::min(next.busy_ns, std::max<int64_t>(0, next.end_ns - last.end_ns));
    last.end_ns = std::max(last.end_ns, next.end_ns);
  }
};

}  // namespace

void outline_work(const RankParts& view, RankFacts& out) {
  const Spans& spans = view.timeline.spans;
  Outline outline;
  for (const DeviceSpan& span : view.device) {
    const SpanKind kind = spans.kind[span.span];
    const bool point_to_point =
        kind == SpanKind::kSend || kind == SpanKind::kReceive ||
        (kind == SpanKind::kCollective && spans.collective[span.span] >= 0 &&
         view.timeline.strings[view.timeline
                                   .collectives[static_cast<size_t>(spans.collective[span.span])]
                                   .name] == "send_receive");
    if (point_to_point) outline.transfers.push_back(span.begin);
  }
  for (const DeviceSpan& span : view.device) {
    if (span.use != DeviceUse::kCompute || span.begin >= span.end) continue;
    const WorkPiece piece{
        span.begin, span.end, span.end - span.begin, span.phase, spans.micro_batch[span.span]};
    outline.add(outline.pieces, piece, kSmallGapNs);
  }
  for (int64_t gap = 2 * kSmallGapNs; outline.pieces.size() > kMostPieces; gap *= 2) {
    std::vector<WorkPiece> coarser;
    for (const WorkPiece& piece : outline.pieces) outline.add(coarser, piece, gap);
    if (gap > (int64_t{1} << 60)) {  // phases or transfers alternate too often: the first ones
      coarser.resize(kMostPieces);
      out.notes.push_back("the outline of compute ends early: too many pieces");
    }
    outline.pieces = std::move(coarser);
  }
  out.work = std::move(outline.pieces);
}

}  // namespace vitrine
