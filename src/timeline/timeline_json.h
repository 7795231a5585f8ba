// A RankTimeline as plain JSON, one span a line with names written out: for golden files and for
// eyes.
#pragma once

#include <string>

#include "timeline/timeline.h"

namespace vitrine {

constexpr int kTimelineJsonVersion = 1;

// Deterministic: equal timelines give equal text, whatever the order in which strings were
// interned.
std::string to_json(const RankTimeline& timeline);

// The inverse. `source` names the text in errors. Throws ConfigError on a wrong version, an unknown
// key or kind, a missing lane, or a wrong type.
RankTimeline rank_timeline_from_json(const std::string& text, const std::string& source);

}  // namespace vitrine
