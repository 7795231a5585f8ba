// Traces that no profiler should write, and some do: steps that share a number, values that can't
// be, depths and times beyond all bounds. Nothing of them is joined or passed over in silence.
#include <gtest/gtest.h>

#include "core/error.h"
#include "readers/far_times.h"
#include "readers/kineto.h"

namespace vitrine {
namespace {

RankTimeline read(const std::string& text) { return read_kineto_text(text, "rank0.json"); }

std::string trace(const std::string& events, const std::string& head = "") {
  return "{" + head + "\"traceEvents\": [" + events + "]}";
}

std::string event(const std::string& category,
                  const std::string& name,
                  int64_t ts,
                  int64_t duration,
                  const std::string& args = "",
                  int thread = 9) {
  return R"({"ph":"X","cat":")" + category + R"(","name":")" + name + R"(","pid":9,"tid":)" +
         std::to_string(thread) + R"(,"ts":)" + std::to_string(ts) + R"(,"dur":)" +
         std::to_string(duration) + R"(,"args":{)" + args + "}}";
}
std::string step(int64_t number, int64_t ts, int64_t duration, int thread = 9) {
  return event(
      "user_annotation", "ProfilerStep#" + std::to_string(number), ts, duration, "", thread);
}

bool warned(const RankTimeline& t, const std::string& words) {
  for (const std::string& text : t.warnings) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}
#define EXPECT_WARNED(t, words) EXPECT_TRUE(warned(t, words)) << testing::PrintToString(t.warnings)

struct Step {
  std::string name;
  int32_t number;
  int64_t start_ns;
  bool operator==(const Step&) const = default;
};
void PrintTo(const Step& step, std::ostream* out) {
  *out << step.name << " (" << step.number << ") at " << step.start_ns;
}
std::vector<Step> steps_of(const RankTimeline& t) {
  std::vector<Step> out;
  for (size_t i = 0; i < t.spans.size(); ++i) {
    if (t.spans.kind[i] == SpanKind::kStep)
      out.push_back({t.strings[t.spans.name[i]], t.spans.step[i], t.spans.start_ns[i]});
  }
  return out;
}
int32_t step_of(const RankTimeline& t, const std::string& name) {
  for (size_t i = 0; i < t.spans.size(); ++i) {
    if (t.strings[t.spans.name[i]] == name) return t.spans.step[i];
  }
  return -2;
}

TEST(KinetoSteps, FourRecordingsOfOneNumberAreFourSteps) {
  std::string events;
  for (int i = 0; i < 4; ++i) {
    events += step(5, 100 * i, 90) + ",";
    events += event("cpu_op", "op" + std::to_string(i), 100 * i + 10, 5) + ",";
  }
  const RankTimeline t = read(trace(events + event("cpu_op", "late", 395, 2)));
  EXPECT_EQ(steps_of(t),
            (std::vector<Step>{{"ProfilerStep#5", 5, 0},
                               {"ProfilerStep#5", 6, 100'000},
                               {"ProfilerStep#5", 7, 200'000},
                               {"ProfilerStep#5", 8, 300'000}}));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step_of(t, "op" + std::to_string(i)), 5 + i);
  EXPECT_EQ(step_of(t, "late"), -1);
  EXPECT_WARNED(t, "3 step marks have a number that an earlier step has");
  EXPECT_WARNED(t, "the first: \"ProfilerStep#5\" at 100000 ns");
}

TEST(KinetoSteps, ASecondRecordingIsNumberedOnFromTheHighest) {
  const RankTimeline t = read(trace(step(1, 0, 10) + "," + step(2, 10, 10) + "," + step(1, 50, 10) +
                                    "," + step(3, 60, 10)));
  EXPECT_EQ(steps_of(t),
            (std::vector<Step>{{"ProfilerStep#1", 1, 0},
                               {"ProfilerStep#2", 2, 10'000},
                               {"ProfilerStep#1", 4, 50'000},
                               {"ProfilerStep#3", 3, 60'000}}));
}

TEST(KinetoSteps, NumbersThatCannotBeReadAreStepsOfTheirOwn) {
  const RankTimeline t = read(trace(step(99999999999, 0, 10) + "," + step(2147483647, 20, 10) +
                                    "," + step(2147483647, 40, 10)));
  EXPECT_EQ(steps_of(t),
            (std::vector<Step>{{"ProfilerStep#99999999999", 0, 0},
                               {"ProfilerStep#2147483647", 2147483647, 20'000},
                               {"ProfilerStep#2147483647", 1, 40'000}}));
  EXPECT_WARNED(t, "2 step marks have a number");
}

TEST(KinetoSteps, ThreadsThatCountForThemselvesAreKeptApartWhereTheyDoNotOverlap) {
  const RankTimeline t =
      read(trace(step(5, 0, 100, 1) + "," + step(5, 2, 100, 2) + "," + step(5, 150, 100, 2)));
  EXPECT_EQ(steps_of(t),
            (std::vector<Step>{{"ProfilerStep#5", 5, 0}, {"ProfilerStep#5", 6, 150'000}}));
  EXPECT_WARNED(t, "1 step marks lie inside another step or mostly over it");
}

TEST(KinetoSteps, StepsThatTouchByRoundingAreSteps) {
  const RankTimeline t = read(trace(step(1, 0, 101) + "," + step(2, 100, 100)));
  EXPECT_EQ(steps_of(t).size(), 2u);
  EXPECT_TRUE(t.warnings.empty() || !warned(t, "step marks"));
}

TEST(KinetoSteps, NestedMarksAreRegions) {
  std::string events = step(0, 0, 1000);
  for (int i = 1; i < 50; ++i) events += "," + step(i, i, 1000 - 2 * i);
  const RankTimeline t = read(trace(events));
  EXPECT_EQ(steps_of(t).size(), 1u);
  EXPECT_EQ(t.spans.kind[1], SpanKind::kRegion);
  EXPECT_WARNED(t, "49 step marks lie inside another step");
}

TEST(KinetoHostile, ADeepArgumentIsPassedOverAndItsEventKept) {
  for (const int depth : {63, 64, 65, 128, 1000, 4000}) {
    const std::string deep = std::string(static_cast<size_t>(depth), '[') + "{\"a\":1}" +
                             std::string(static_cast<size_t>(depth), ']');
    const RankTimeline t = read(
        trace(event("cpu_op", "deep", 1, 2, "\"x\":" + deep) + "," + event("cpu_op", "b", 5, 1)));
    ASSERT_EQ(t.spans.size(), 2u) << depth;
    EXPECT_EQ(t.strings[t.spans.name[0]], "deep");
    EXPECT_FALSE(warned(t, "not JSON"));
  }
}

TEST(KinetoHostile, BracketsThatDoNotMatchAreDamageAtAnyDepth) {
  for (const int depth : {2, 70, 200}) {
    const std::string wrong = std::string(static_cast<size_t>(depth), '{') + "]" +
                              std::string(static_cast<size_t>(depth - 1), '}');
    const RankTimeline t = read(
        trace(event("cpu_op", "bad", 1, 2, "\"x\":" + wrong) + "," + event("cpu_op", "b", 5, 1)));
    ASSERT_EQ(t.spans.size(), 1u) << depth;
    EXPECT_EQ(t.strings[t.spans.name[0]], "b");
    EXPECT_WARNED(t, "not JSON");
  }
}

TEST(KinetoHostile, DeeperThanAnyBoundIsSaidAsWhatItIs) {
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  const RankTimeline t = read(
      trace(event("cpu_op", "deep", 1, 2, "\"x\":" + deep) + "," + event("cpu_op", "b", 5, 1)));
  ASSERT_EQ(t.spans.size(), 1u);
  EXPECT_WARNED(t, "nested more than 4096 deep");
}

TEST(KinetoHostile, ASecondDocumentIsSaidWithItsPlace) {
  const std::string first = trace(event("cpu_op", "a", 1, 2));
  for (const std::string between : {"", "\n", "  \n\n"}) {
    const RankTimeline t = read(first + between + trace(event("cpu_op", "b", 1, 2)));
    EXPECT_EQ(t.spans.size(), 1u);
    EXPECT_WARNED(t,
                  "another JSON document begins behind the trace, at byte " +
                      std::to_string(first.size() + between.size()));
  }
  const std::string list = "[" + event("cpu_op", "a", 1, 2) + "]";
  EXPECT_WARNED(read(list + list), "at byte " + std::to_string(list.size()));
  EXPECT_WARNED(read(first + " oops"), "no part of the trace follows it, at byte");
  EXPECT_TRUE(read(first + " \n\t\n").warnings.empty());
}

TEST(KinetoHostile, ABaseTimeThatIsNoTimeIsSaid) {
  const std::string events = event("cpu_op", "a", 1, 2);
  for (const std::string value : {"\"x\"",
                                  "-5",
                                  "1.5",
                                  "null",
                                  "[]",
                                  "99999999999999999999",
                                  "\"\"",
                                  "9223372036854775807"}) {
    const RankTimeline t = read(trace(events, "\"baseTimeNanoseconds\": " + value + ","));
    EXPECT_EQ(t.wall_anchor_ns, 0) << value;
    EXPECT_WARNED(t, "baseTimeNanoseconds is no time (" + value + ")");
  }
  for (const std::string value : {"1700000000000000000", "\"1700000000000000000\""}) {
    const RankTimeline t = read(trace(events, "\"baseTimeNanoseconds\": " + value + ","));
    EXPECT_EQ(t.wall_anchor_ns, 1700000000000000000);
    EXPECT_TRUE(t.warnings.empty());
  }
}

TEST(KinetoHostile, SizesAndRanksThatCannotBeAreSaid) {
  const auto of = [](const std::string& group) {
    return read(
        trace(event("cpu_op", "a", 1, 2),
              R"("distributedInfo": {"rank": 0, "world_size": 4, "pg_config": [)" + group + "]},"));
  };
  const RankTimeline negative = of(R"({"pg_name": "p", "pg_size": -3, "ranks": [0, 1]})");
  ASSERT_EQ(negative.groups.size(), 1u);
  EXPECT_EQ(negative.groups[0].size, 2);
  EXPECT_WARNED(negative, "distributedInfo has 1 sizes or ranks that can't be");
  EXPECT_WARNED(negative, "the first: pg_size = -3 in {\"pg_name\":\"p\"");
  const RankTimeline other = of(R"({"pg_name": "p", "pg_size": 3, "ranks": [0, 1]})");
  EXPECT_EQ(other.groups[0].size, 2);
  EXPECT_WARNED(other, "pg_size = 3");
  const RankTimeline below = of(R"({"pg_name": "p", "pg_size": 2, "ranks": [0, -1]})");
  EXPECT_TRUE(below.groups[0].ranks.empty());
  EXPECT_WARNED(below, "ranks = [0,-1]");
  EXPECT_TRUE(of(R"({"pg_name": "p", "pg_size": 2, "ranks": [0, 1]})").warnings.empty());
  // Lists of large groups are shortened by their writer.
  EXPECT_TRUE(of(R"({"pg_name": "p", "pg_size": 64, "ranks": [0, 1, "..."]})").warnings.empty());
  const RankTimeline world = read(
      trace(event("cpu_op", "a", 1, 2), R"("distributedInfo": {"rank": 0, "world_size": -4},)"));
  EXPECT_WARNED(world, "world_size = -4");
  const RankTimeline used = read(trace(
      event("kernel",
            "ncclDevKernel_AllReduce",
            1,
            2,
            R"("Collective name":"allreduce","Group size":-3,"In msg nelems":1,"dtype":"Float")")));
  ASSERT_EQ(used.collectives.size(), 1u);
  EXPECT_EQ(used.collectives[0].group_size, -1);
  EXPECT_WARNED(used, "1 collectives have a group size that can't be");
}

TEST(KinetoHostile, EventsFarFromAllOthersAreLeftOut) {
  const int64_t now = 1700000000000000;  // us since the epoch
  const RankTimeline t = read(trace(
      event("cpu_op", "unset", 0, 5) + "," + event("cpu_op", "a", now, 2) + "," +
      event("cpu_op", "b", now + 5, 2) + "," + event("cpu_op", "endless", now + 6, 4000000000000) +
      R"(,{"ph":"C","name":"c","pid":0,"ts":3,"args":{"x":1}})"));
  ASSERT_EQ(t.spans.size(), 2u);
  EXPECT_EQ(t.strings[t.spans.name[0]], "a");
  EXPECT_TRUE(t.counters.empty());
  EXPECT_WARNED(t, "3 events lie more than 13 days from the others, or last longer");
}

TEST(KinetoHostile, SpansTogetherFitWhatIsSummedOverRanks) {
  std::string events;
  for (int i = 0; i < 100; ++i) {
    events += (i > 0 ? "," : "") + event("cpu_op", "long", i, 1'000'000'000'000);
  }
  const RankTimeline t = read(trace(events));
  int64_t sum = 0;
  for (const int64_t duration : t.spans.duration_ns) sum += duration;
  EXPECT_LE(sum, kMostSpanTimeNs);
  EXPECT_EQ(t.spans.size(), 36u);  // of 10^15 ns each, in 2^55
  EXPECT_WARNED(t, "64 events lie more than 13 days from the others");
}

}  // namespace
}  // namespace vitrine
