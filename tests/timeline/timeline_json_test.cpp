// The plain JSON form is frozen by a golden text, round-trips, and refuses what it does not know.
#include "timeline/timeline_json.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "timeline/sample_timeline.h"

namespace vitrine {
namespace {

TEST(TimelineJson, MatchesTheGoldenFile) {
  EXPECT_EQ(to_json(sample_timeline()), read_text_file("tests/timeline/golden/timeline.json"));
}

TEST(TimelineJson, RoundTrips) {
  const std::string text = to_json(sample_timeline());
  const RankTimeline read = rank_timeline_from_json(text, "text");
  EXPECT_EQ(to_json(read), text);
  EXPECT_EQ(read.spans.size(), sample_timeline().spans.size());
  EXPECT_EQ(read.collectives.size(), sample_timeline().collectives.size());
}

TEST(TimelineJson, KnowsEverySpanKindByName) {
  for (int kind = 0; kind <= static_cast<int>(SpanKind::kStep); ++kind) {
    EXPECT_EQ(span_kind_from_name(span_kind_name(static_cast<SpanKind>(kind))),
              static_cast<SpanKind>(kind));
  }
  EXPECT_THROW(span_kind_from_name("backwards"), ConfigError);
}

// Replaces `from` by `to` in the good text; the error must name `expected`.
void expect_refused(const std::string& from, const std::string& to, const std::string& expected) {
  std::string text = to_json(sample_timeline());
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << from;
  text.replace(place, from.size(), to);
  try {
    rank_timeline_from_json(text, "broken.json");
    FAIL() << "accepted " << to;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("broken.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
  }
}

TEST(TimelineJson, RefusesBadInputAndSaysWhere) {
  expect_refused("\"version\": 1", "\"version\": 99", "99");
  expect_refused("\"kind\":\"forward\"", "\"kind\":\"forwards\"", "forwards");
  expect_refused("\"lane\":\"gather\"", "\"lane\":\"nowhere\"", "nowhere");
  expect_refused("\"duration_ns\":", "\"duration\":", "duration");
  expect_refused("\"duration_ns\":", "\"duration_ns\":-", "duration_ns");
  expect_refused("\"ranks\":[0,1]", "\"ranks\":[\"a\"]", "not a timeline");
  expect_refused("\"spans\": [", "\"spans\": [[", "line");
}

}  // namespace
}  // namespace vitrine
