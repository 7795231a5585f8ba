// metrics.jsonl and event files: what is written is read back, by us and by an independent decoder.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "metrics/metrics_reader.h"
#include "metrics/metrics_writer.h"

namespace vitrine {
namespace {

class MetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/vitrine_metrics_XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string jsonl() const { return folder_ + "/metrics.jsonl"; }
  std::vector<std::string> event_files() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path().filename().string().starts_with("events.")) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  std::string folder_;
};

// Output and exit status of a shell command.
std::pair<std::string, int> run(const std::string& command) {
  std::string out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char block[4096];
  size_t n = 0;
  while ((n = fread(block, 1, sizeof(block), pipe)) > 0) out.append(block, n);
  return {out, pclose(pipe)};
}

TEST_F(MetricsTest, WritesOneLineAStepThatIsThereAtOnce) {
  MetricsWriter writer(folder_);
  writer.write(1, {{"loss", 2.5}, {"tokens", 4096}});
  const std::string line = read_text_file(jsonl());
  const Json json = parse_json(line, "line");
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["loss"], 2.5);
  EXPECT_TRUE(json["tokens"].is_number_integer());
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST_F(MetricsTest, ReadsBackAsColumnsWithGaps) {
  {
    MetricsWriter writer(folder_);
    writer.write(1, {{"loss", 2.5}});
    writer.write(2, {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"eval_loss", 3}});
    writer.write(5, {{"loss", 0.1}});
  }
  const MetricsTable table = read_metrics(jsonl());
  EXPECT_EQ(table.steps, (std::vector<int64_t>{1, 2, 5}));
  const auto& loss = *table.find("loss");
  EXPECT_EQ(loss[0], 2.5);
  EXPECT_TRUE(std::isnan(loss[1]));
  EXPECT_EQ(loss[2], 0.1);
  const auto& evaluated = *table.find("eval_loss");
  EXPECT_TRUE(std::isnan(evaluated[0]));
  EXPECT_EQ(evaluated[1], 3);
  EXPECT_TRUE(std::isnan(evaluated[2]));
  EXPECT_EQ(table.find("nothing"), nullptr);
}

TEST_F(MetricsTest, AResumedRunCutsOffLaterStepsAndTornLines) {
  {
    MetricsWriter writer(folder_);
    for (int64_t step = 1; step <= 6; ++step) writer.write(step, {{"loss", 10.0 + double(step)}});
  }
  std::ofstream(jsonl(), std::ios::app) << "{\"step\": 7, \"lo";
  MetricsOptions options;
  options.resumed_step = 4;
  {
    MetricsWriter writer(folder_, options);
    writer.write(5, {{"loss", 0.5}});
  }
  const MetricsTable table = read_metrics(jsonl());
  EXPECT_EQ(table.steps, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(table.find("loss")->back(), 0.5);
  EXPECT_EQ(event_files().size(), 2u);
}

TEST_F(MetricsTest, RefusesAStepThatDoesNotAscend) {
  MetricsWriter writer(folder_);
  writer.write(3, {});
  EXPECT_THROW(writer.write(3, {}), ConfigError);
}

TEST_F(MetricsTest, ReadersNameTheBrokenLine) {
  for (const char* bad :
       {"{\"loss\": 1}", "{\"step\": \"a\"}", "[1]", "{", "{\"step\": 1, \"x\": \"y\"}"}) {
    std::ofstream(jsonl()) << "{\"step\": 1}\n" << bad << "\n";
    try {
      read_metrics(jsonl());
      FAIL() << "accepted " << bad;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(read_metrics(folder_ + "/none.jsonl"), IoError);
  EXPECT_THROW(MetricsWriter("/nowhere/at/all"), IoError);
}

TEST(Crc32c, MatchesThePublishedVectors) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_F(MetricsTest, AnIndependentDecoderReadsTheEventFile) {
  if (run("python3 --version").second != 0) GTEST_SKIP() << "no python3";
  {
    MetricsOptions options;
    options.resumed_step = 299;
    MetricsWriter writer(folder_, options);
    writer.write(300, {{"train/loss", 2.5}, {"train/lr", 0.125}});
    writer.write(70000, {{"train/loss", -1.75}});
  }
  const auto [text, status] = run("python3 tools/read_tfevents.py " + event_files().at(0));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text,
            "version brain.Event:2\n300 session 1\n300 train/loss 2.5\n300 train/lr 0.125\n"
            "70000 train/loss -1.75\n");
  // The decoder itself must notice damage.
  std::fstream file(event_files().at(0), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-6, std::ios::end);
  file.put('X');
  file.close();
  EXPECT_NE(run("python3 tools/read_tfevents.py " + event_files().at(0)).second, 0);
}

}  // namespace
}  // namespace vitrine
