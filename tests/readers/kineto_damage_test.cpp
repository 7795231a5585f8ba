// Traces that are not whole or not true: what is kept, what is said of the rest, and what is
// refused.
#include <gtest/gtest.h>
#include <zlib.h>

#include "core/error.h"
#include "core/json.h"
#include "readers/kineto.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"
#include "timeline/chrome_writer.h"
#include "timeline/sample_timeline.h"

namespace vitrine {
namespace {

RankTimeline read(const std::string& text) { return read_kineto_text(text, "rank0.json"); }

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const IoError& error) {
    return error.what();
  }
  return "no error";
}

std::string trace(const std::string& events) { return "{\"traceEvents\": [" + events + "]}"; }

std::string kernel(const std::string& name, int ts, const std::string& more = "") {
  return R"({"ph":"X","cat":"kernel","name":")" + name + R"(","pid":0,"tid":7,"ts":)" +
         std::to_string(ts) + R"(,"dur":2,"args":{"correlation":)" + std::to_string(ts) + "}" +
         more + "}";
}
std::string launch(int correlation, int ts, const std::string& pid = "9") {
  return R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":)" + pid +
         R"(,"tid":9,"ts":)" + std::to_string(ts) + R"(,"dur":1,"args":{"correlation":)" +
         std::to_string(correlation) + "}}";
}

std::vector<std::string> names(const RankTimeline& t) {
  std::vector<std::string> out;
  for (const StringId name : t.spans.name) out.push_back(t.strings[name]);
  return out;
}

// The warning that holds `words`, or all of them.
std::string warning(const RankTimeline& t, const std::string& words) {
  std::string all;
  for (const std::string& text : t.warnings) {
    if (text.find(words) != std::string::npos) return text;
    all += text + "\n";
  }
  return "none with \"" + words + "\" among:\n" + all;
}
#define EXPECT_WARNING(timeline, words)                                    \
  EXPECT_EQ(warning(timeline, words).find("none with"), std::string::npos) \
      << warning(timeline, words)

using Names = std::vector<std::string>;

TEST(KinetoDamage, ASoundTraceGetsNoWarning) {
  const RankTimeline t = read(trace(launch(5, 1) + "," + kernel("a", 5)));
  EXPECT_TRUE(t.warnings.empty()) << t.warnings[0];
}

TEST(KinetoDamage, ACutFileKeepsAllBeforeTheCutAndSaysWhere) {
  const std::string events = launch(11, 1) + "," + kernel("a", 11) + ",\n";
  const std::string whole = "{\"traceEvents\": [" + events + kernel("b", 21) + "]}";
  const size_t last = std::string("{\"traceEvents\": [").size() + events.size();
  for (size_t size = last + 1; size < whole.size() - 2; ++size) {
    const RankTimeline t = read(whole.substr(0, size));
    EXPECT_EQ(names(t), (Names{"cudaLaunchKernel", "a"})) << size;
    EXPECT_WARNING(t, "without its bracket at byte " + std::to_string(last) + ":");
  }
  EXPECT_EQ(names(read(whole.substr(0, whole.size() - 2))).size(), 3u);
  EXPECT_WARNING(read(whole.substr(0, whole.size() - 2)), "without its bracket");
  EXPECT_WARNING(read(whole.substr(0, whole.size() - 1)), "behind the events are cut");
  EXPECT_TRUE(read(trace(launch(11, 1) + "," + kernel("a", 11))).warnings.empty());
}

TEST(KinetoDamage, ACutBeforeTheFirstEventIsAnErrorThatNamesFileAndPlace) {
  const std::string whole = trace(kernel("a", 1));
  for (size_t size = 1; size < whole.size() - 2; ++size) {
    const std::string message = error_of(whole.substr(0, size));
    EXPECT_NE(message.find("rank0.json"), std::string::npos) << size << ": " << message;
    EXPECT_NE(message.find("byte "), std::string::npos) << size << ": " << message;
  }
}

TEST(KinetoDamage, UnescapedQuotesAreMended) {
  const RankTimeline t =
      read(trace(launch(1, 0) + "," + kernel(R"(say "hi", now)", 1) + "," + kernel("b", 5)));
  EXPECT_EQ(names(t), (Names{"cudaLaunchKernel", R"(say "hi", now)", "b"}));
  EXPECT_WARNING(t, "1 events have unescaped quotes or backslashes");
}

TEST(KinetoDamage, ABackslashBeforeTheLastQuoteIsMended) {
  const RankTimeline t = read(trace(kernel(R"(C:\dir\)", 1) + "," + kernel("b", 5)));
  EXPECT_EQ(names(t), (Names{R"(C:\dir\)", "b"}));
}

TEST(KinetoDamage, UnknownEscapesAndControlCharactersAreKept) {
  const RankTimeline t = read(trace(kernel(R"(C:\dir)", 1) + "," + kernel("two\nlines\x01", 5) +
                                    "," + kernel(R"(A\u00e9\ud83d\ude00\n\ud83d)", 9)));
  EXPECT_EQ(names(t),
            (Names{R"(C:\dir)", "two\nlines\x01", "A\xC3\xA9\xF0\x9F\x98\x80\n\xEF\xBF\xBD"}));
  EXPECT_WARNING(t, "1 texts have unknown escapes");
  EXPECT_WARNING(t, "1 texts have raw newlines");
  EXPECT_WARNING(t, "1 texts are not UTF-8");
}

TEST(KinetoDamage, BadUtf8IsRepairedAndCountedEveryTime) {
  const RankTimeline t = read(
      trace(kernel("a\xFF", 1) + "," + kernel("a\xFF", 5) + "," + kernel("\xC3\xA9\xE2\x82", 9)));
  EXPECT_EQ(names(t),
            (Names{"a\xEF\xBF\xBD", "a\xEF\xBF\xBD", "\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD"}));
  EXPECT_WARNING(t,
                 "3 texts are not UTF-8: the bad bytes are shown as U+FFFD (the first at byte 17)");
}

TEST(KinetoDamage, WhatIsNoJsonIsLeftOutUpToTheNextEvent) {
  const std::string before = launch(5, 1) + ",";
  const RankTimeline t =
      read(trace(before + R"({"ph":"X","cat":kernel??,"name":"lost","args":{"a":1}},)" +
                 kernel("b", 5) + ", ,{\"ph\":\"X\" oops " + "," + kernel("c", 9)));
  EXPECT_EQ(names(t), (Names{"cudaLaunchKernel", "b", "c"}));
  const size_t at = std::string("{\"traceEvents\": [").size() + before.size();
  EXPECT_WARNING(t, "2 places are not JSON");
  EXPECT_WARNING(t, "the first at byte " + std::to_string(at));
}

TEST(KinetoDamage, ADamagedLastEventDoesNotHideWhatFollowsTheList) {
  const RankTimeline t = read("{\"traceEvents\": [" + kernel("a", 1) +
                              R"(,{"ph":"X","name":oops}], "baseTimeNanoseconds": 1000})");
  EXPECT_EQ(t.wall_anchor_ns, 1000);
  EXPECT_EQ(names(t), (Names{"a"}));
}

TEST(KinetoDamage, DamagedMetadataDoNotHideTheEvents) {
  const RankTimeline t =
      read(R"({"distributedInfo": {"rank": oops"}, "traceEvents": [)" + kernel("a", 1) + "]}");
  EXPECT_EQ(names(t), (Names{"a"}));
  EXPECT_WARNING(t, "metadata before the events are not whole JSON");
}

TEST(KinetoDamage, BrokenEventsAreLeftOutAndCounted) {
  const RankTimeline t = read(trace(R"J(
    17, {}, {"ph":"X","cat":"kernel","pid":0,"tid":7,"ts":1,"dur":1},
    {"ph":"X","cat":"kernel","name":"late","pid":0,"tid":7,"ts":99999999999999999999,"dur":1},
    {"ph":"X","cat":"kernel","name":"odd","pid":0,"tid":7,"ts":5,"dur":-3},
    {"ph":"X","cat":"kernel","name":"id","pid":0,"tid":7,"ts":6,"dur":1,"args":{"correlation":18446744073709551615}})J"));
  EXPECT_WARNING(t, "4 entries are no events");
  EXPECT_WARNING(t, "1 durations are negative");
  ASSERT_EQ(t.spans.size(), 2u);
  EXPECT_EQ(t.spans.duration_ns[0], 0);
  EXPECT_EQ(static_cast<uint64_t>(t.spans.correlation[1]), UINT64_MAX);
}

TEST(KinetoDamage, KernelsWhoseTimesWereLostAreLeftOut) {
  const RankTimeline t = read(trace(R"J(
    {"ph":"X","cat":"kernel","name":"lost","pid":0,"tid":7,"ts":0,"dur":0},
    {"ph":"X","cat":"kernel","name":"brief","pid":0,"tid":7,"ts":1600000000000000,"dur":0})J"));
  EXPECT_EQ(names(t), (Names{"brief"}));
  EXPECT_WARNING(t, "1 device events have time 0 and duration 0");
  EXPECT_WARNING(t, "1 kernel or copy lasts 0 ns");
}

TEST(KinetoDamage, OverlappingKernelsOfOneStreamAreKeptAndCounted) {
  const RankTimeline t = read(trace(kernel("a", 1) + "," + kernel("b", 2) + "," + kernel("c", 4)));
  EXPECT_EQ(t.spans.size(), 3u);
  EXPECT_EQ(t.spans.duration_ns, (std::vector<int64_t>{2000, 2000, 2000}));
  EXPECT_WARNING(
      t, "1 kernel begins before the one before on their stream has ended, by up to 1000 ns");
}

TEST(KinetoDamage, ImpossibleDurationsAreClippedOnAmdCardsOnly) {
  const std::string events =
      R"J({"ph":"X","cat":"kernel","name":"a","pid":0,"tid":0,"ts":10,"dur":3000000},
          {"ph":"X","cat":"kernel","name":"b","pid":0,"tid":0,"ts":40,"dur":5})J";
  const RankTimeline amd = read(R"({"roctracer_version": 4.1, "traceEvents": [)" + events + "]}");
  EXPECT_EQ(amd.spans.duration_ns, (std::vector<int64_t>{30'000, 5'000}));
  EXPECT_WARNING(amd, "1 kernel seems to last into the next one's time");
  const RankTimeline other = read(trace(events));
  EXPECT_EQ(other.spans.duration_ns, (std::vector<int64_t>{3'000'000'000, 5'000}));
  EXPECT_WARNING(other, "1 kernel begins before the one before on");
}

TEST(KinetoDamage, KernelsThatBeginBeforeTheirLaunchAreCounted) {
  const RankTimeline t =
      read(trace(launch(5, 9) + "," + launch(7, 6) + "," + kernel("a", 5) + "," + kernel("b", 7)));
  EXPECT_WARNING(
      t, "1 of 2 kernels and copies begin before the call that launched them, by up to 4000 ns");
}

TEST(KinetoDamage, KernelsWithoutALaunchAreCounted) {
  const RankTimeline t = read(trace(launch(5, 1) + "," + kernel("a", 5) + "," + kernel("b", 8)));
  EXPECT_WARNING(t, "1 of 2 kernels and copies have no recorded launch");
}

TEST(KinetoDamage, LaunchesWhoseKernelsWereLostAreCounted) {
  std::string events = kernel("a", 1);
  for (int i = 0; i < 30; ++i) events += "," + launch(1 + i, i);
  EXPECT_WARNING(read(trace(events)), "29 of 30 kernel launches have no kernel");
}

// Two ranks' files in one: both began to count their launches at 1.
TEST(KinetoDamage, CollidingCorrelationsOfAMergedFileAreToldApartByCard) {
  std::string events;
  for (int i = 1; i <= 5; ++i) {
    const int at = i * 100;
    events += launch(i, at, "100") + "," + launch(i, at + 50, "200") + ",";
    for (const int card : {0, 1}) {
      events += R"({"ph":"X","cat":"kernel","name":"k","pid":)" + std::to_string(card) +
                R"(,"tid":7,"ts":)" + std::to_string(at + 10 + card * 50) +
                R"(,"dur":2,"args":{"correlation":)" + std::to_string(i) + "}},";
    }
  }
  events += launch(77, 900, "100");
  const RankTimeline t = read(trace(events));
  EXPECT_WARNING(t, "2 processes launch work in this file, and use the same correlation numbers");
  std::map<int64_t, std::vector<int32_t>> lanes;
  for (size_t i = 0; i < t.spans.size(); ++i)
    lanes[t.spans.correlation[i]].push_back(t.spans.lane[i]);
  size_t pairs = 0;
  for (const auto& [correlation, at] : lanes) {
    if (at.size() == 1) continue;
    ASSERT_EQ(at.size(), 2u) << correlation;  // one launch, one kernel
    EXPECT_FALSE(t.lanes[static_cast<size_t>(at[0])].device);
    EXPECT_TRUE(t.lanes[static_cast<size_t>(at[1])].device);
    // Threads of process 100 and the stream of card 0 stand first among their kind.
    EXPECT_EQ(at[0] - 2, at[1]);
    ++pairs;
  }
  EXPECT_EQ(pairs, 10u);
}

TEST(KinetoDamage, CollidingCorrelationsOnCardsOfOneNumberGoToTheLastLaunchBefore) {
  const RankTimeline t = read(trace(
      launch(1, 10, "100") + "," + launch(1, 50, "200") + "," +
      R"({"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":20,"dur":1,"args":{"correlation":1}},)" +
      R"({"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":60,"dur":1,"args":{"correlation":1}})"));
  ASSERT_EQ(t.spans.size(), 4u);  // by time: launch, a, launch, b
  EXPECT_EQ(t.spans.correlation[0], t.spans.correlation[1]);
  EXPECT_EQ(t.spans.correlation[2], t.spans.correlation[3]);
  EXPECT_NE(t.spans.correlation[0], t.spans.correlation[2]);
}

TEST(KinetoDamage, AmountsThatCannotBeAreBroughtWhereSumsFit) {
  constexpr int64_t kMost = int64_t{1} << 44;
  const RankTimeline t = read(trace(
      R"({"ph":"i","name":"[memory]","ts":1,"args":{"Bytes":9223372036854775807,"Total Allocated":99999999999999999999}},
         {"ph":"i","name":"[memory]","ts":2,"args":{"Bytes":-9223372036854775808,"Total Allocated":5}},
         {"ph":"X","cat":"gpu_memcpy","name":"Memcpy","pid":0,"tid":7,"ts":3,"dur":1,"args":{"bytes":-4}},
         {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce","pid":0,"tid":8,"ts":4,"dur":1,"args":{
           "Collective name":"allreduce","In msg nelems":9223372036854775807,"Out msg nelems":8,
           "dtype":"Float","Group size":2,"Sent bytes":9223372036854775807}})"));
  ASSERT_EQ(t.allocations.size(), 2u);
  EXPECT_EQ(t.allocations[0].bytes, kMost);
  EXPECT_EQ(t.allocations[0].allocated, kMost);
  EXPECT_EQ(t.allocations[1].bytes, -kMost);
  EXPECT_EQ(t.allocations[1].allocated, 5);
  ASSERT_EQ(t.spans.size(), 2u);
  EXPECT_EQ(t.spans.bytes[0], 0);
  ASSERT_EQ(t.collectives.size(), 1u);
  EXPECT_EQ(t.collectives[0].in_elements, int64_t{1} << 40);
  EXPECT_EQ(t.collectives[0].out_elements, 8);
  EXPECT_EQ(t.collectives[0].sent_bytes, kMost);
  EXPECT_WARNING(t, "6 numbers of bytes or elements can't be");
}

TEST(KinetoDamage, ManyLargeAmountsDoNotAddUpBeyondAnInteger) {
  std::string events;
  for (int i = 0; i < 70'000; ++i) {
    if (i > 0) events += ',';
    events += R"({"ph":"i","name":"[memory]","ts":1,"args":{"Bytes":17592186044416}})";
  }
  const RankTimeline t = read(trace(events));
  ASSERT_EQ(t.allocations.size(), 70'000u);
  int64_t sum = 0;
  for (const AllocationEvent& event : t.allocations) {
    ASSERT_FALSE(__builtin_add_overflow(sum, event.bytes, &sum));
  }
  EXPECT_EQ(sum, int64_t{1} << 56);
  EXPECT_WARNING(t, "65904 numbers of bytes or elements can't be");  // 70000 - 2^12
}

TEST(KinetoDamage, TimesOfSamplesAreBoundedAsThoseOfSpansAre) {
  const RankTimeline t =
      read(trace(kernel("a", 1) +
                 R"(,{"ph":"i","name":"[memory]","ts":9000000000000000,"args":{"Bytes":1}},
          {"ph":"C","name":"c","pid":0,"ts":-9000000000000000,"args":{"x":1}},
          {"ph":"C","name":"c","pid":0,"ts":2,"args":{"x":1}})"));
  EXPECT_TRUE(t.allocations.empty());
  EXPECT_EQ(t.counters.size(), 1u);
  EXPECT_WARNING(t, "2 entries are no events");
}

TEST(KinetoErrors, AnEmptyListOfEventsIsNone) {
  EXPECT_EQ(error_of(trace("")), "no error");
  EXPECT_EQ(error_of("[]"), "no error");
  EXPECT_EQ(read(trace("")).spans.size(), 0u);
  EXPECT_NE(error_of(trace("5")).find("no whole event"), std::string::npos);
}

TEST(KinetoErrors, TellOtherFilesFromTraces) {
  EXPECT_NE(error_of("{\"model\": {}}").find("no list \"traceEvents\""), std::string::npos);
  EXPECT_NE(error_of("{\"traceEvents\": 5}").find("no list \"traceEvents\""), std::string::npos);
  EXPECT_NE(error_of("12").find("a single value"), std::string::npos);
  EXPECT_NE(error_of("step,loss\n1,2\n").find("something else (bytes 73 74"), std::string::npos);
  EXPECT_NE(error_of("\x89PNG\r\n\x1a\n").find("a PNG picture"), std::string::npos);
  EXPECT_NE(error_of("").find("is empty"), std::string::npos);
  EXPECT_EQ(error_of("\xEF\xBB\xBF" + trace("")), "no error");  // a byte order mark
}

TEST(KinetoErrors, SayWhenAFileIsMissingEmptyOrAFolder) {
  const TemporaryFolder folder;
  const auto error_for = [](const std::string& path) -> std::string {
    try {
      read_kineto(path);
    } catch (const IoError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_for(folder / "none.json").find("No such file"), std::string::npos);
  EXPECT_NE(error_for(folder.path()).find("is a folder"), std::string::npos);
  write_text_file(folder / "empty.json", "");
  EXPECT_NE(error_for(folder / "empty.json").find("is empty"), std::string::npos);
}

class KinetoGzip : public testing::Test {
 protected:
  KinetoGzip() {
    write_chrome_trace(sample_timeline(), folder_ / "t.json.gz");
    whole_ = read_text_file(folder_ / "t.json.gz");
  }
  RankTimeline read_bytes(const std::string& bytes) {
    write_text_file(folder_ / "rank0.json.gz", bytes);
    return read_kineto(folder_ / "rank0.json.gz");
  }
  TemporaryFolder folder_;
  std::string whole_;
};

TEST_F(KinetoGzip, ACutStreamKeepsWhatCouldBeInflated) {
  const size_t all = read_bytes(whole_).spans.size();
  EXPECT_TRUE(read_bytes(whole_).warnings.empty());
  const RankTimeline most = read_bytes(whole_.substr(0, whole_.size() - 4));  // of the checksum
  EXPECT_EQ(most.spans.size(), all);
  EXPECT_WARNING(most, "cut short");
  bool some = false;
  for (size_t size = 30; size < whole_.size(); size += 7) {
    try {
      const RankTimeline part = read_bytes(whole_.substr(0, size));
      EXPECT_WARNING(part, "cut short");
      some |= part.spans.size() > 0 && part.spans.size() < all;
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("rank0.json.gz"), std::string::npos);
    }
  }
  EXPECT_TRUE(some);
}

TEST_F(KinetoGzip, AWrongChecksumIsSaid) {
  whole_[whole_.size() - 8] = static_cast<char>(whole_[whole_.size() - 8] ^ 1);
  EXPECT_WARNING(read_bytes(whole_), "damaged");
}

// Stored blocks need no compressor: the bytes stand there as they are (RFC 1951, 1952).
std::string stored_member(const std::string& text) {
  const auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
  const auto little = [](uint32_t value, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 255);
    return out;
  };
  const auto size = static_cast<uint32_t>(text.size());
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff\x01", 11) + little(size, 2) +
         little(~size & 0xffff, 2) + text + little(crc, 4) + little(size, 4);
}

TEST_F(KinetoGzip, MembersOneAfterAnotherAreOneText) {
  const std::string text = trace(launch(1, 0) + "," + kernel("a", 1));
  const RankTimeline t =
      read_bytes(stored_member(text.substr(0, 40)) + stored_member(text.substr(40)));
  EXPECT_EQ(names(t), (Names{"cudaLaunchKernel", "a"}));
  EXPECT_TRUE(t.warnings.empty()) << t.warnings[0];
}

TEST_F(KinetoGzip, PaddingIsPassedOverAndAnythingElseBehindTheDataIsSaid) {
  EXPECT_TRUE(read_bytes(whole_ + std::string(512, '\0')).warnings.empty());
  EXPECT_WARNING(read_bytes(whole_ + "junk"), "not gzip follows");
}

// The first piece is of one event again and again, the rest of noise: what is to come seems
// endless.
TEST_F(KinetoGzip, AMisleadingCompressionDoesNotReserveWithoutEnd) {
  std::string events = "[";
  const size_t each = kernel("a", 1).size() + 1;
  const size_t many = (size_t{4} << 20) / each;
  for (size_t i = 0; i < many; ++i) events += kernel("a", 1) + ",";
  uint64_t noise = 1;
  events += "{\"ph\":\"X\",\"name\":\"";
  for (int i = 0; i < 4'000'000; ++i) {
    noise = noise * 6364136223846793005u + 1442695040888963407u;
    events += static_cast<char>('0' + (noise >> 33) % 64);
    if (events.back() == '\\') events.back() = 'z';
  }
  write_gzip(folder_ / "t.gz", events + "\"}]");
  const RankTimeline t = read_kineto(folder_ / "t.gz");
  EXPECT_EQ(t.spans.size(), many);
  EXPECT_LE(t.spans.start_ns.capacity(), size_t{4} << 20);
}

TEST_F(KinetoGzip, AStreamOfNothingIsEmpty) {
  EXPECT_THROW(read_bytes(stored_member("")), IoError);
}

}  // namespace
}  // namespace vitrine
