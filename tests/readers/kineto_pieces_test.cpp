// Wherever a text is cut into pieces, and however many threads parse them, the timeline is the
// same.
#include <gtest/gtest.h>

#include "core/json.h"
#include "readers/kineto.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"
#include "timeline/chrome_writer.h"
#include "timeline/synthetic_run.h"
#include "timeline/timeline_json.h"

namespace vitrine {
namespace {

// Everything of a timeline that a file can hold, warnings too.
std::string everything(const RankTimeline& t) {
  std::string text = to_json(t);
  for (const auto& w : t.warnings) text += w + "\n";
  for (const auto& a : t.allocations) {
    text += std::to_string(a.time_ns) + " " + std::to_string(a.address) + " " +
            std::to_string(a.bytes) + " " + std::to_string(a.allocated) + "\n";
  }
  for (const auto& g : t.groups) text += g.name + " " + g.description + "\n";
  for (const StringId shapes : t.spans.shapes) text += t.strings[shapes] + "\n";
  return text;
}

RankTimeline read(const std::string& text, size_t chunk_bytes, int threads) {
  KinetoOptions options;
  options.chunk_bytes = chunk_bytes;
  options.threads = threads;
  return read_kineto_text(text, "rank0.json", options);
}

// Lists of objects inside of events, and texts that look like the beginning of one: the places
// where a cut guesses wrong.
std::string confusing() {
  std::string events;
  for (int i = 0; i < 40; ++i) {
    const std::string n = std::to_string(i);
    events += R"({"ph":"X","cat":"cpu_op","name":"op )" + n +
              R"( , {\"ph\": 1}, {","pid":1,"tid":)" + std::to_string(i % 3) + R"(,"ts":)" +
              std::to_string(1000 - i) +
              R"(,"dur":1.5,"args":{"x":[{"name":1},{"ph":2},{"args":[]}],
              "Input Dims":[[)" +
              n + R"(, 8], []]}},
  {"ph":"s","id":1,"pid":1,"tid":1,"ts":5,"cat":"ac2g","name":", {\"ph\":"}, {"ph": "i", "name": "[memory]",
   "ts": )" + n +
              R"(, "args": {"Bytes": 1, "Total Allocated": )" + n + R"(}},
)";
  }
  return R"({"schemaVersion": 1, "traceEvents": [)" + events +
         R"({"ph":"X","cat":"user_annotation","name":"last","pid":0,"tid":7,"ts":1,"dur":1}],
   "baseTimeNanoseconds": 77, "distributedInfo": {"rank": 3}})";
}

TEST(KinetoPieces, CutsAtEveryPlaceGiveOneTimeline) {
  const std::string text = confusing();
  const std::string expected = everything(read(text, size_t{1} << 20, 1));
  const RankTimeline t = read(text, size_t{1} << 20, 1);
  EXPECT_EQ(t.spans.size(), 41u);
  EXPECT_EQ(t.allocations.size(), 40u);
  EXPECT_EQ(t.wall_anchor_ns, 77);
  EXPECT_TRUE(t.warnings.empty()) << t.warnings[0];
  for (size_t bytes = 16; bytes < 700; bytes += 41) {
    ASSERT_EQ(everything(read(text, bytes, 1)), expected) << bytes;
  }
  for (const size_t bytes : {100, 1000, 4000}) {
    for (const int threads : {2, 3})
      ASSERT_EQ(everything(read(text, bytes, threads)), expected) << bytes;
  }
}

TEST(KinetoPieces, DamageIsFoundInPiecesToo) {
  std::string text = confusing();
  text.replace(text.find("\"op 20"), 6, "\"op \"20");
  text.replace(text.find("\"name\":\"op 30"), 7, "\"name\"?");
  const std::string expected = everything(read(text, size_t{1} << 20, 1));
  EXPECT_NE(expected.find("1 events have unescaped quotes"), std::string::npos) << expected;
  EXPECT_NE(expected.find("1 places are not JSON"), std::string::npos) << expected;
  for (const size_t bytes : {50, 100, 333, 1000}) {
    ASSERT_EQ(everything(read(text, bytes, 2)), expected) << bytes;
  }
}

TEST(KinetoPieces, ACutFileIsCutAtTheSamePlace) {
  const std::string text = confusing();
  for (size_t size = 300; size < text.size() - 120; size += 1601) {
    const std::string part = text.substr(0, size);
    ASSERT_EQ(everything(read(part, 100, 2)), everything(read(part, size_t{1} << 20, 1))) << size;
  }
}

TEST(KinetoPieces, ASecondListOfEventsIsReadToo) {
  const std::string event =
      R"({"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1})";
  const std::string other =
      R"({"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":2,"ts":2,"dur":1})";
  const RankTimeline t = read(
      "{\"traceEvents\": [" + event + "," + other + "], \"traceEvents\": [" + other + "]}", 64, 1);
  ASSERT_EQ(t.spans.size(), 3u);
  EXPECT_EQ(t.strings[t.spans.name[0]], "a");
  EXPECT_EQ(t.strings[t.spans.name[2]], "b");
  EXPECT_EQ(t.lanes.size(), 2u);
}

TEST(KinetoPieces, OurOwnTracesToo) {
  const TemporaryFolder folder;
  write_chrome_trace(synthetic_run().ranks[1], folder / "rank1.json");
  const std::string text = read_text_file(folder / "rank1.json");
  EXPECT_EQ(everything(read(text, 500, 2)), everything(read(text, size_t{1} << 20, 1)));
}

TEST(KinetoPieces, ARealTraceToo) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const std::string path = data + "/traces/h200/pipeline_1f1b_2mb/rank0.json.gz";
  KinetoOptions small, large;
  small.chunk_bytes = 30011;
  large.chunk_bytes = size_t{1} << 26, large.threads = 1;
  const RankTimeline expected = read_kineto(path, large);
  EXPECT_GT(expected.spans.size(), 10000u);
  EXPECT_EQ(everything(read_kineto(path, small)), everything(expected));
}

}  // namespace
}  // namespace vitrine
