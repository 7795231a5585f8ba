// The last whole line of growing files, and Prometheus' text.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "metrics/metrics_tail.h"
#include "metrics/prometheus.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

TEST(MetricsTail, IsTheLastWholeLine) {
  const ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  EXPECT_FALSE(last_metrics(path));
  write_text_file(path, "");
  EXPECT_FALSE(last_metrics(path));
  write_text_file(path, R"({"step":1)");
  EXPECT_FALSE(last_metrics(path));
  const std::string first = "{\"step\":1,\"time\":5.5,\"loss\":2.0,\"lr\":null}\n";
  write_text_file(path, first);
  ASSERT_TRUE(last_metrics(path));
  EXPECT_EQ(last_metrics(path)->step, 1);
  EXPECT_EQ(last_metrics(path)->time_s, 5.5);
  EXPECT_EQ(last_metrics(path)->get("loss"), 2.0);
  EXPECT_TRUE(std::isnan(last_metrics(path)->get("lr")));
  EXPECT_TRUE(std::isnan(last_metrics(path)->get("no such name")));
  write_text_file(path, first + "{\"step\":2,\"loss\":1.5}\n{\"step\":3,\"lo");
  EXPECT_EQ(last_metrics(path)->step, 2);
}

TEST(MetricsTail, FindsLinesLongerThanABlockAndInFilesOfAnyLength) {
  const ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string pad(10000, 'x');
  const std::string last = "{\"step\":9,\"" + pad + "\":1}\n";
  write_text_file(path, last);
  EXPECT_EQ(last_metrics(path)->step, 9);
  for (size_t before = 4080; before < 4110; ++before) {  // around the size of a block
    write_text_file(path, "{\"step\":8,\"" + std::string(before, 'y') + "\":1}\n" + last);
    EXPECT_EQ(last_metrics(path)->step, 9);
    write_text_file(path, last + "{\"step\":8,\"" + std::string(before, 'y') + "\":1}\n");
    EXPECT_EQ(last_metrics(path)->step, 8);
  }
}

TEST(MetricsTail, RefusesALineThatIsNoMetrics) {
  const ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  write_text_file(path, "hello\n");
  EXPECT_THROW(last_metrics(path), ConfigError);
  write_text_file(path, "{\"loss\":1}\n");
  EXPECT_THROW(last_metrics(path), ConfigError);
}

TEST(Prometheus, KeepsFamiliesTogetherAndEscapes) {
  PrometheusText out;
  out.gauge("a.b", "what\nit is", {}, 1.5);
  out.counter("sent_total", "bytes", {{"gpu", "0"}, {"name", "a\"b\\c"}}, 3);
  out.gauge("a.b", "what\nit is", {{"x", "1"}}, std::numeric_limits<double>::infinity());
  out.gauge("a.b", "what\nit is", {}, std::numeric_limits<double>::quiet_NaN());
  out.gauge("9", "digit first", {}, -1);
  EXPECT_EQ(out.text(),
            "# HELP a_b what\\nit is\n# TYPE a_b gauge\na_b 1.5\na_b{x=\"1\"} +Inf\n"
            "# HELP sent_total bytes\n# TYPE sent_total counter\n"
            "sent_total{gpu=\"0\",name=\"a\\\"b\\\\c\"} 3\n"
            "# HELP _9 digit first\n# TYPE _9 gauge\n_9 -1\n");
}

}  // namespace
}  // namespace vitrine
