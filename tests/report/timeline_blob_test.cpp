// The compressed timeline says again what went in, read by a decoder written from the format's
// description; and thinning drops what it promises to.
#include "report/timeline_blob.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <set>
#include <tuple>

#include "core/json.h"
#include "timeline/synthetic_run.h"

namespace vitrine {
namespace {

std::string unbase64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return out;
}

std::string inflated(const std::string& packed) {
  std::string out;
  z_stream stream{};
  inflateInit(&stream);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  int status = Z_OK;
  while (status == Z_OK) {
    char part[65536];
    stream.next_out = reinterpret_cast<Bytef*>(part), stream.avail_out = sizeof(part);
    status = inflate(&stream, Z_NO_FLUSH);
    out.append(part, sizeof(part) - stream.avail_out);
  }
  EXPECT_EQ(status, Z_STREAM_END);
  inflateEnd(&stream);
  return out;
}

struct Decoded {
  Json header;
  std::map<std::string, std::vector<uint64_t>> columns;

  explicit Decoded(const TimelineBlob& blob) {
    const std::string bytes = inflated(unbase64(blob.base64));
    EXPECT_EQ(bytes.substr(0, 4), "VTL1");
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length |= size_t{static_cast<uint8_t>(bytes[4 + i])} << 8 * i;
    header = Json::parse(bytes.substr(8, length));
    size_t at = 8 + length;
    for (const Json& column : header["columns"]) {
      const size_t end = at + column[1].get<size_t>();
      auto& values = columns[column[0]];
      while (at < end) {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
          const auto byte = static_cast<uint8_t>(bytes[at++]);
          value |= uint64_t{byte & 127u} << shift;
          if (byte < 128) break;
        }
        values.push_back(value);
      }
    }
    EXPECT_EQ(at, bytes.size());
  }
  static int64_t zigzag(uint64_t value) {
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
};

using Row = std::tuple<int64_t, int64_t, std::string, int, std::string, size_t, int64_t>;

TEST(TimelineBlob, SaysAgainWhatWentIn) {
  const RankTimeline timeline = synthetic_run().ranks[0];
  const TimelineBlob blob = encode_timeline(timeline);
  EXPECT_EQ(blob.spans_shown, timeline.spans.size());
  const Decoded decoded(blob);
  std::multiset<Row> rows, expected;
  size_t place = 0;
  int64_t step = 0;
  for (size_t lane = 0; lane < decoded.header["lanes"].size(); ++lane) {
    for (const Json& length : decoded.header["lanes"][lane]["tracks"]) {
      int64_t time = blob.begin_ns, before = time;
      for (size_t i = 0; i < length.get<size_t>(); ++i, ++place) {
        time += static_cast<int64_t>(decoded.columns.at("start")[place]);
        EXPECT_GE(time, before);  // none of a track overlaps the next
        const auto duration = static_cast<int64_t>(decoded.columns.at("duration")[place]);
        before = time + duration;
        step += Decoded::zigzag(decoded.columns.at("step")[place]);
        const Json& cls = decoded.header["classes"][decoded.columns.at("class")[place]];
        const Json& strings = decoded.header["strings"];
        rows.emplace(time,
                     duration,
                     strings[cls[0].get<size_t>()],
                     cls[1],
                     strings[cls[2].get<size_t>()],
                     lane,
                     step);
      }
    }
  }
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    expected.emplace(spans.start_ns[i],
                     spans.duration_ns[i],
                     timeline.strings[spans.name[i]],
                     static_cast<int>(spans.kind[i]),
                     timeline.strings[spans.block[i]],
                     static_cast<size_t>(spans.lane[i]),
                     spans.step[i]);
  }
  EXPECT_EQ(rows, expected);
  // Pairs of place and index.
  EXPECT_EQ(decoded.columns.at("collective").size(), 2 * timeline.collectives.size());
}

// A launch of 2 ns every 10, each with a kernel of 4 ns; one long operator around.
RankTimeline launches(int64_t count) {
  RankTimeline out;
  out.lanes = {{"stream 7", true, 7}, {"thread 1", false, 1}};
  add_span(out, 0, 10 * count, SpanKind::kOperation, "op", 1, 0);
  for (int64_t i = 0; i < count; ++i) {
    add_span(out, 10 * i, 2, SpanKind::kRuntime, "launch", 1, 0, -1, "", i + 1);
    add_span(out, 10 * i + 3, 4 + i, SpanKind::kKernel, "kernel", 0, 0, -1, "", i + 1);
  }
  return out;
}

TEST(TimelineBlob, LinksAKernelToItsLaunch) {
  const Decoded decoded(encode_timeline(launches(3)));
  // Kernels overlap, so they lie in tracks of their own; the operator is in one, launches in the
  // next.
  std::vector<int64_t> links;
  int64_t link = 0;
  for (const uint64_t value : decoded.columns.at("link")) {
    links.push_back(link += Decoded::zigzag(value));
  }
  EXPECT_EQ(links, (std::vector<int64_t>{4, 5, 6, -1, -1, -1, -1}));
}

TEST(TimelineBlob, OverlappingSpansTakeTheFirstTrackThatHasEnded) {
  // 1000 that overlap all, then as many that begin when every second of those has ended.
  constexpr int64_t kMany = 1000;
  RankTimeline timeline;
  timeline.lanes = {{"stream 7", true, 7}};
  for (int64_t i = 0; i < kMany; ++i) {
    add_span(timeline, i, (i % 2 == 0 ? 2000 : 5000) - i, SpanKind::kKernel, "a", 0, -1);
  }
  for (int64_t i = 0; i < kMany; ++i) {
    add_span(timeline, 2000 + i, 9000, SpanKind::kKernel, "b", 0, -1);
  }
  const Decoded decoded(encode_timeline(timeline));
  const Json& tracks = decoded.header["lanes"][0]["tracks"];
  ASSERT_EQ(tracks.size(), 1500u);
  for (size_t track = 0; track < 1500; ++track) {
    EXPECT_EQ(tracks[track], track < 1000 && track % 2 == 0 ? 2 : 1) << track;
  }
}

TEST(TimelineBlob, DropsShortHostSpansFirst) {
  const RankTimeline timeline = launches(100);
  const TimelineBlob some = encode_timeline(timeline, {150, 1 << 20});
  EXPECT_EQ(some.host_under_ns, 3);
  EXPECT_EQ(some.device_under_ns, 0);
  EXPECT_EQ(some.spans_shown, 101u);  // equal ones go together
  EXPECT_EQ(some.spans_total, 201u);
  const TimelineBlob few = encode_timeline(timeline, {40, 1 << 20});
  EXPECT_GT(few.device_under_ns, 0);
  EXPECT_LE(few.spans_shown, 40u);
  EXPECT_GE(few.spans_shown, 39u);
}

TEST(TimelineBlob, KeepsToItsBytes) {
  const RankTimeline timeline = synthetic_run().ranks[0];
  const size_t whole = encode_timeline(timeline).base64.size();
  const TimelineBlob blob = encode_timeline(timeline, {1 << 20, whole / 2});
  EXPECT_LE(blob.base64.size(), whole / 2);
  EXPECT_LT(blob.spans_shown, blob.spans_total);
}

TEST(TimelineBlob, AnEmptyTimelineIsEmpty) {
  const TimelineBlob blob = encode_timeline({});
  EXPECT_EQ(blob.spans_total, 0u);
  EXPECT_EQ(Decoded(blob).header["spans"], 0);
}

}  // namespace
}  // namespace vitrine
