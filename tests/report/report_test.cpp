// The report: numbers in the page's data are right, and the page is whole, safe and self-contained.
#include "report/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <regex>

#include "core/error.h"
#include "core/json.h"
#include "report/image.h"
#include "report/report_data.h"
#include "report/sample_job.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

const Json* card_of(const Json& data, const std::string& label) {
  for (const Json& card : data["cards"]) {
    if (card["label"] == label) return &card;
  }
  return nullptr;
}

TEST(Report, JudgesTheExposedCommunication) {
  for (const auto& [exposed, tone] : {std::pair{31, "bad"}, {20, "warn"}, {10, "good"}}) {
    JobFacts job;
    job.ranks.resize(1);
    job.ranks[0].total = {100, 60, exposed, 0, 40 - exposed, exposed + 5, 5};
    ReportInput input;
    input.job = &job;
    const Json data = report_data(input);
    const Json* card = card_of(data, "Exposed communication");
    ASSERT_NE(card, nullptr);
    EXPECT_EQ((*card)["tone"], tone);
    EXPECT_EQ((*card)["value"], std::to_string(exposed) + ".0");
    EXPECT_EQ(data["job"]["time"]["ranks"][0]["whole"]["exposed_communication"], exposed);
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

TEST(Report, BringsRanksToTheClockOfTheJob) {
  SampleJob sample;
  // Rank 1's clock started a second earlier, in epoch nanoseconds that no double holds.
  const int64_t shift = 1700000000123456789;
  for (int64_t& start : sample.timeline.ranks[1].spans.start_ns) start += shift;
  for (auto& step : sample.job.ranks[1].steps) step.start_ns += shift;
  sample.job.ranks[1].begin_ns += shift, sample.job.ranks[1].end_ns += shift;
  sample.job.clocks[1].offset_ns -= shift;
  const Json data = report_data(sample.input());
  for (const Json& rank : data["timeline"]["ranks"]) EXPECT_EQ(rank["begin"], 0);
  EXPECT_EQ(data["job"]["time"]["ranks"][1]["steps"][0]["start"],
            data["job"]["time"]["ranks"][0]["steps"][0]["start"]);
}

TEST(Report, EvidenceKeepsItsPlace) {
  const SampleJob sample;
  const Json data = report_data(sample.input());
  const Json& finding = data["diagnosis"]["findings"][0];
  const Json& evidence = finding["evidence"][0];
  const Json& step = data["job"]["time"]["ranks"][2]["steps"][1];
  EXPECT_EQ(finding["severity"], "critical");
  EXPECT_EQ(evidence["begin"], step["start"]);
  EXPECT_EQ(evidence["end"].get<int64_t>() - evidence["begin"].get<int64_t>(), step["duration"]);
}

TEST(Report, SumsKernelsOverRanksAndKeepsThemApart) {
  const SampleJob sample;
  const Json kernel = report_data(sample.input())["job"]["tables"]["kernels"][0];
  EXPECT_EQ(kernel["name"], "gemm_kernel");
  EXPECT_EQ(kernel["count"], 4 * 96);
  EXPECT_EQ(kernel["total"], 4 * 90000000);
  EXPECT_EQ(kernel["by_rank"], Json::array({90000000, 90000000, 90000000, 90000000}));
}

TEST(Report, SharesACollectivesBytesOverTheOthersAndGivesAMessageToItsPeer) {
  SampleJob sample;
  sample.job.ranks[3].collectives[0].peer = 1;
  const Json bytes = report_data(sample.input())["job"]["communication"]["bytes"]["data"];
  int64_t from_0 = 0, from_3 = 0;
  for (const Json& cell : bytes) {
    if (cell[0] == 0) {
      EXPECT_EQ(cell[2], 3000000);
      from_0 += cell[2].get<int64_t>();
    } else if (cell[0] == 3) {
      EXPECT_EQ(cell[1], 1);
      from_3 += cell[2].get<int64_t>();
    }
  }
  EXPECT_EQ(from_0, 9000000);
  EXPECT_EQ(from_3, 9000000);
}

TEST(Report, TakesPeaksFromTheLedgerOrElseFromTheFacts) {
  SampleJob sample;
  ReportInput input = sample.input();
  Json data = report_data(input);
  EXPECT_EQ(data["memory"]["ranks"][0]["peak"], sample.job.ranks[0].memory.peak_allocated);
  EXPECT_NE((*card_of(data, "Peak memory"))["note"].get<std::string>().find("80 %"),
            std::string::npos);

  MemoryLedger ledger;
  ledger.add(MemoryCategory::kParameters, "body.0", 1 << 20);
  ledger.add(MemoryCategory::kActivations, "body.1", 2 << 20);
  for (auto& rank : sample.job.ranks) rank.memory.known = rank.rank == 0;
  input.memory = {RankMemory::of(0, ledger)};
  input.memory_capacity_bytes = (3 << 20) + 1;
  data = report_data(input);
  EXPECT_EQ(data["memory"]["ranks"][0]["peak"], 3 << 20);
  EXPECT_EQ(data["memory"]["ranks"][0]["holders"][0]["holder"], "body.1");
  EXPECT_EQ((*card_of(data, "Peak memory"))["tone"], "bad");
}

TEST(Report, ThinnedMemoryCurvesKeepTheirPeak) {
  JobFacts job;
  job.ranks.resize(100);
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    MemoryFacts& memory = job.ranks[r].memory;
    job.ranks[r].rank = static_cast<int32_t>(r), memory.known = true;
    for (int64_t i = 0; i < 2000; ++i) {
      memory.curve.push_back({i, i == 777 ? 999 : 1, 0, {i == 777 ? 999 : 1}, 0});
    }
    memory.peak_allocated = 999;
  }
  ReportInput input;
  input.job = &job;
  const Json bytes = report_data(input)["memory"]["ranks"][0]["bytes"];
  int64_t peak = 0;
  for (const Json& point : bytes) peak = std::max(peak, point[0].get<int64_t>());
  EXPECT_LT(bytes.size(), 600u);
  EXPECT_EQ(peak, 999);
}

TEST(Report, SaysEachWarningOnceWithItsRanks) {
  SampleJob sample;
  for (auto& rank : sample.job.ranks) rank.warnings = {"3 events had no name"};
  sample.job.ranks[1].warnings.push_back("the file is cut");
  const Json warnings = report_data(sample.input())["warnings"];
  EXPECT_EQ(warnings,
            Json::array({"every rank: 3 events had no name",
                         "rank 1: the file is cut",
                         "rank 3's clock is not sure"}));
}

TEST(Report, IsOneSafeFileWithoutOutsideLinks) {
  const TemporaryFolder folder;
  std::ofstream(folder / "a.gif", std::ios::binary) << "GIF89a...";
  const SampleJob sample;
  ReportInput input = sample.input();
  input.title = "</script><script>alert(1)</script> {{data}} {{js}}";
  input.images = {{"step 100", folder / "a.gif"}, {"gone", folder / "none.gif"}};
  write_report(input, folder / "report.html");
  const std::string page = read_text_file(folder / "report.html");
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<img src=x"), std::string::npos);
  EXPECT_EQ(page.find("{{css}}"), std::string::npos);
  EXPECT_NE(page.find("data:image/gif;base64,R0lGODlhLi4u"), std::string::npos);
  EXPECT_NE(page.find("A picture is left out"), std::string::npos);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"?(https?:)?//")));
  // The data between its tags is JSON again.
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(open) + open.size();
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["title"], input.title);
  EXPECT_NE(page.find("<script type=\"text/plain\" id=\"timeline-3\">e"), std::string::npos);
  EXPECT_THROW(write_report(input, "/nowhere/report.html"), IoError);
}

TEST(Report, KeepsTheLicenceOfTheChartLibrary) {
  const TemporaryFolder folder;
  write_report({}, folder / "report.html");
  EXPECT_NE(read_text_file(folder / "report.html").find("Leon Sorokin"), std::string::npos);
}

TEST(Image, Base64MatchesTheRfcsVectors) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
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
