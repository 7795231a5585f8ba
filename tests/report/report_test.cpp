// The report: numbers in the page's data are right, and the page is whole, safe and self-contained.
#include "report/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <regex>

#include "analysis/breakdown.h"
#include "core/error.h"
#include "core/json.h"
#include "report/image.h"
#include "report/report_data.h"
#include "support/temporary_folder.h"
#include "timeline/synthetic_run.h"

namespace vitrine {
namespace {

const Json* card_of(const Json& data, const std::string& label) {
  for (const Json& card : data["cards"]) {
    if (card["label"] == label) return &card;
  }
  return nullptr;
}

// One rank, one step of 100 ns: 60 compute, then `exposed` of communication.
Timeline small_timeline(int64_t exposed) {
  RankTimeline rank;
  rank.lanes = {{"compute", true, 0}, {"reduce", true, 1}, {"steps", false, 2}};
  add_span(rank, 0, 100, SpanKind::kStep, "step", 2, 0);
  add_span(rank, 0, 60, SpanKind::kForward, "f", 0, 0);
  add_span(rank, 60, exposed, SpanKind::kReduce, "r", 1, 0);
  Timeline out;
  out.ranks.push_back(std::move(rank));
  return out;
}

TEST(Report, JudgesTheExposedCommunication) {
  for (const auto& [exposed, tone] : {std::pair{31, "bad"}, {20, "warn"}, {10, "good"}}) {
    const Timeline timeline = small_timeline(exposed);
    ReportInput input;
    input.timeline = &timeline;
    const Json data = report_data(input);
    const Json* card = card_of(data, "Exposed communication");
    ASSERT_NE(card, nullptr);
    EXPECT_EQ((*card)["tone"], tone);
    EXPECT_EQ((*card)["value"], std::to_string(exposed) + ".0");
    EXPECT_EQ(data["breakdown"][0]["whole"]["exposed_communication"], exposed);
  }
}

TEST(Report, SummarisesMetrics) {
  ReportInput input;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  input.metrics.steps = {1, 2, 3};
  input.metrics.columns = {{"loss", {3, 2, nan}}, {"tokens_per_second", {1000, 12000, 13000}}};
  const Json data = report_data(input);
  EXPECT_EQ((*card_of(data, "Final loss"))["value"], "2");
  EXPECT_EQ((*card_of(data, "Final loss"))["tone"], "bad");  // it ended in NaN
  EXPECT_EQ((*card_of(data, "Throughput"))["value"], "12.0");
  EXPECT_EQ((*card_of(data, "Throughput"))["unit"], "k tokens/s");
  EXPECT_EQ(Json::parse(data.dump())["metrics"]["columns"][0]["values"],
            Json::parse("[3.0,2.0,null]"));
}

TEST(Report, AlignsRanksByTheirWallClocksAndKeepsEverySpan) {
  Timeline timeline = synthetic_run();
  // The same moments on a monotonic clock that started 1 s earlier.
  for (int64_t& start : timeline.ranks[1].spans.start_ns) start += 1000000000;
  timeline.ranks[1].wall_anchor_ns -= 1000000000;
  ReportInput input;
  input.timeline = &timeline;
  const Json data = report_data(input);
  ASSERT_EQ(data["timeline"]["ranks"].size(), 4u);
  for (size_t r = 0; r < 4; ++r) {
    const Json& rank = data["timeline"]["ranks"][r];
    EXPECT_EQ(rank["spans"]["start"].size(), timeline.ranks[r].spans.size());
    EXPECT_EQ(rank["spans"]["depth"].size(), timeline.ranks[r].spans.size());
    EXPECT_EQ(rank["steps"].size(), 4u);
    EXPECT_EQ(rank["spans"]["start"][0], 0);
  }
}

TEST(Report, ShowsTheFirstPartOfAHugeTimelineAndSaysSo) {
  const Timeline timeline = synthetic_run();
  ReportInput input;
  input.timeline = &timeline;
  input.max_spans = 400;
  const Json data = report_data(input);
  size_t shown = 0;
  for (const Json& rank : data["timeline"]["ranks"]) shown += rank["spans"]["start"].size();
  EXPECT_LE(shown, 400u);
  EXPECT_GT(shown, 390u);
  ASSERT_EQ(data["warnings"].size(), 1u);
  EXPECT_NE(data["warnings"][0].get<std::string>().find("1984 spans"), std::string::npos);
}

TEST(Report, TakesPeaksFromTheLedgerOrElseFromSamples) {
  const Timeline timeline = synthetic_run();
  ReportInput input;
  input.timeline = &timeline;
  Json data = report_data(input);
  int64_t peak = 0;
  for (const auto& sample : timeline.ranks[0].memory) {
    int64_t sum = 0;
    for (const int64_t bytes : sample.bytes) sum += bytes;
    peak = std::max(peak, sum);
  }
  EXPECT_EQ(data["memory"]["ranks"][0]["peak"], peak);

  MemoryLedger ledger;
  ledger.add(MemoryCategory::kParameters, "body.0", 1 << 20);
  ledger.add(MemoryCategory::kActivations, "body.1", 2 << 20);
  input.memory = {RankMemory::of(0, ledger)};
  input.memory_capacity_bytes = (3 << 20) + 1;
  data = report_data(input);
  EXPECT_EQ(data["memory"]["ranks"][0]["peak"], 3 << 20);
  EXPECT_EQ(data["memory"]["ranks"][0]["holders"][0]["holder"], "body.1");
  EXPECT_EQ((*card_of(data, "Peak memory"))["tone"], "bad");
}

TEST(Report, ThinnedMemoryCurvesKeepTheirPeak) {
  RankTimeline rank;
  for (int64_t i = 0; i < 10000; ++i) rank.memory.push_back({i, {i == 7777 ? 999 : 1}});
  Timeline timeline;
  timeline.ranks.push_back(rank);
  ReportInput input;
  input.timeline = &timeline;
  const Json data = report_data(input);
  int64_t peak = 0;
  const Json& bytes = data["memory"]["ranks"][0]["bytes"];
  EXPECT_LE(bytes.size(), 2000u);
  for (const Json& sample : bytes) peak = std::max(peak, sample[0].get<int64_t>());
  EXPECT_EQ(peak, 999);
}

TEST(Report, IsOneSafeFileWithoutOutsideLinks) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.gif", std::ios::binary) << "GIF89a...";
  ReportInput input;
  input.title = "</script><script>alert(1)</script> {{data}} {{js}}";
  input.images = {{"step 100", folder / "a.gif"}, {"gone", folder / "none.gif"}};
  write_report(input, folder / "report.html");
  const std::string page = read_text_file(folder / "report.html");
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("{{css}}"), std::string::npos);
  EXPECT_NE(page.find("data:image/gif;base64,R0lGODlhLi4u"), std::string::npos);
  EXPECT_NE(page.find("A picture is left out"), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"?(https?:)?//")));
  // The data between its tags is JSON again.
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["title"], input.title);
  EXPECT_THROW(write_report(input, "/nowhere/report.html"), IoError);
}

TEST(Image, Base64MatchesTheRfcsVectors) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : vectors) EXPECT_EQ(base64(plain), coded);
  EXPECT_EQ(base64("\xff\xfe"), "//4=");
}

TEST(Image, RefusesWhatIsNoPicture) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.txt") << "hello";
  EXPECT_THROW(image_data_uri(folder / "a.txt"), ConfigError);
  EXPECT_THROW(image_data_uri(folder / "none"), IoError);
}

}  // namespace
}  // namespace vitrine
