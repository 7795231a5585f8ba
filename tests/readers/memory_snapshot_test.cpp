// Snapshots against what Python's own pickle module says of the same files.
#include "readers/memory_snapshot.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

const std::string kData = "tests/readers/data/";
using Action = AllocatorEvent::Action;

class SmallSnapshot : public testing::TestWithParam<int> {};

TEST_P(SmallSnapshot, IsReadWholeInEveryProtocol) {
  const AllocatorSnapshot s =
      read_memory_snapshot(kData + "snapshot_protocol" + std::to_string(GetParam()) + ".pickle");
  constexpr uint64_t kBig = 0xFFFF800000000000u;
  ASSERT_EQ(s.segments.size(), 1u);
  const AllocatorSegment& segment = s.segments[0];
  EXPECT_EQ(segment.device, 1);
  EXPECT_EQ(segment.address, kBig);
  EXPECT_EQ(segment.total_bytes, 2 << 20);
  EXPECT_EQ(segment.allocated_bytes, 4096);
  EXPECT_EQ(segment.active_bytes, 4608);
  EXPECT_EQ(segment.requested_bytes, 4500);
  EXPECT_TRUE(segment.large);
  EXPECT_TRUE(segment.expandable);
  ASSERT_EQ(segment.blocks.size(), 4u);
  EXPECT_EQ(segment.blocks[0].state, AllocatorBlock::State::kActive);
  EXPECT_EQ(segment.blocks[0].requested_bytes, 4000);
  EXPECT_EQ(segment.blocks[1].state, AllocatorBlock::State::kInactive);
  EXPECT_EQ(segment.blocks[2].state, AllocatorBlock::State::kAwaitingFree);
  EXPECT_EQ(segment.blocks[2].address, kBig + (1 << 20));

  ASSERT_EQ(s.history.size(), 2u);
  EXPECT_TRUE(s.history[0].empty());
  ASSERT_EQ(s.history[1].size(), 7u);
  const AllocatorEvent& first = s.history[1][0];
  EXPECT_EQ(first.action, Action::kSegmentAlloc);
  EXPECT_EQ(first.address, kBig);
  EXPECT_EQ(first.time_ns, 1000000);
  const AllocatorEvent& oom = s.history[1][6];
  EXPECT_EQ(oom.action, Action::kOutOfMemory);
  EXPECT_EQ(oom.address, 12345u);
  EXPECT_EQ(oom.size_bytes, int64_t{1} << 40);

  EXPECT_EQ(s.frames.size(), 4u);
  ASSERT_EQ(s.stacks.size(), 2u);  // equal ones once, wherever they stand
  EXPECT_EQ(oom.stack, first.stack);
  EXPECT_EQ(segment.blocks[0].stack, s.history[1][5].stack);
  EXPECT_EQ(s.history[1][2].stack, -1);
  const auto& stack = s.stacks[static_cast<size_t>(first.stack)];
  ASSERT_EQ(stack.size(), 2u);
  EXPECT_EQ(s.strings[s.frames[stack[1]].function], "forward");
  EXPECT_EQ(s.strings[s.frames[stack[1]].file], "/home/me/model.py");
  EXPECT_EQ(s.frames[stack[1]].line, 33);

  ASSERT_EQ(s.annotations.size(), 2u);
  EXPECT_TRUE(s.annotations[0].start);
  EXPECT_FALSE(s.annotations[1].start);
  EXPECT_EQ(s.annotations[0].time_ns, 999000);
  EXPECT_EQ(s.settings.at("expandable_segments"), "true");
  EXPECT_EQ(s.settings.at("max_split_size"), "-1");
  EXPECT_EQ(s.settings.at("garbage_collection_threshold"), "0.5");
  EXPECT_EQ(s.settings.at("roundup_power2_divisions.1"), "0");
  EXPECT_FALSE(s.history_wrapped);
  EXPECT_TRUE(s.warnings.empty());
}

INSTANTIATE_TEST_SUITE_P(Protocols, SmallSnapshot, testing::Values(2, 3, 4, 5));

TEST(MemorySnapshot, ARealOneHasTheSumsThatPythonFinds) {
  const AllocatorSnapshot s = read_memory_snapshot(kData + "memory_snapshot_rank0.pickle.gz");
  EXPECT_EQ(s.rank, 0);
  EXPECT_EQ(s.segments.size(), 107u);
  ASSERT_EQ(s.history.size(), 2u);
  ASSERT_EQ(s.history[0].size(), 4938u);
  EXPECT_TRUE(s.history[1].empty());
  std::map<Action, std::pair<int64_t, int64_t>> sums;
  int64_t lines = 0;
  for (const AllocatorEvent& event : s.history[0]) {
    ++sums[event.action].first;
    sums[event.action].second += event.size_bytes;
    if (event.stack < 0) continue;
    for (const uint32_t frame : s.stacks[static_cast<size_t>(event.stack)]) {
      lines += s.frames[frame].line;
    }
  }
  using Sum = std::pair<int64_t, int64_t>;
  EXPECT_EQ(sums[Action::kAlloc], Sum(1746, 138646780498));
  EXPECT_EQ(sums[Action::kFreeRequested], Sum(1544, 137644499338));
  EXPECT_EQ(sums[Action::kFreeCompleted], Sum(1544, 137644499338));
  EXPECT_EQ(sums[Action::kSegmentAlloc], Sum(104, 28359786496));
  EXPECT_EQ(lines, 26863063);
  int64_t total = 0, active = 0;
  size_t blocks = 0;
  for (const AllocatorSegment& segment : s.segments) {
    total += segment.total_bytes;
    active += segment.active_bytes;
    blocks += segment.blocks.size();
  }
  EXPECT_EQ(total, 30492590080);
  EXPECT_EQ(active, 1070988800);
  EXPECT_EQ(blocks, 308u);
  EXPECT_EQ(s.frames.size(), 116u);
  EXPECT_EQ(s.stacks.size(), 74u);
  EXPECT_EQ(s.annotations.size(), 560u);
  EXPECT_EQ(s.history[0].front().time_ns, 1795972659025468000);
  EXPECT_EQ(s.history[0].back().time_ns, 1795972659459168000);
  // Some blocks are older than the history.
  EXPECT_TRUE(s.history_wrapped);
  ASSERT_EQ(s.warnings.size(), 1u);
}

TEST(MemorySnapshot, OtherPicklesAreRefused) {
  TemporaryFolder folder;
  const auto refusal = [](const std::string& path) {
    try {
      read_memory_snapshot(path);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_NE(refusal(kData + "values_protocol5.pickle").find("no allocator snapshot"),
            std::string::npos);
  EXPECT_NE(refusal(write_file(folder / "none", "\x80\x04N.")).find("no allocator snapshot"),
            std::string::npos);
  EXPECT_NE(refusal(kData + "runs_code_protocol4.pickle").find("STACK_GLOBAL"), std::string::npos);
}

TEST(MemorySnapshot, ACutGzipIsSaidToBeCut) {
  TemporaryFolder folder;
  const std::string whole = file_content(kData + "memory_snapshot_rank0.pickle.gz");
  try {
    read_memory_snapshot(write_file(folder / "cut.gz", whole.substr(0, whole.size() / 2)));
    FAIL() << "read";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("cut short"), std::string::npos) << error.what();
  }
}

TEST(MemorySnapshot, AListThatRepeatsAnEventIsNotBelievedTwice) {
  TemporaryFolder folder;
  // {"device_traces": [[e, e]]} with e = {"action": "alloc"}
  std::string bytes =
      "\x80\x04}\x8c\x0d"
      "device_traces]](}\x8c\x06"
      "action\x8c\x05"
      "allocs\x94h";
  bytes += std::string(1, '\0') + "eas.";
  const AllocatorSnapshot s = read_memory_snapshot(write_file(folder / "p", bytes));
  ASSERT_EQ(s.history.size(), 1u);
  EXPECT_EQ(s.history[0].size(), 1u);
  ASSERT_GE(s.warnings.size(), 1u);
  EXPECT_NE(s.warnings[0].find("stand twice"), std::string::npos);
}

// L = [{"action": "alloc"}], once in full and then from the memo.
const std::string kOneEvent =
    "](}\x8c\x06"
    "action\x8c\x05"
    "allocse";

TEST(MemorySnapshot, TwoDevicesWithOneHistoryAreRefused) {
  TemporaryFolder folder;
  // {"device_traces": [L, L]}
  const std::string bytes =
      "\x80\x04}\x8c\x0d"
      "device_traces](" +
      kOneEvent + "\x94h" + std::string(1, '\0') + "es.";
  try {
    read_memory_snapshot(write_file(folder / "p", bytes));
    FAIL() << "read";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("devices 0 and 1"), std::string::npos) << error.what();
  }
}

TEST(MemorySnapshot, AnEventOfTheWholeHistoryThatStandsInAnotherIsLeftOut) {
  TemporaryFolder folder;
  // {"device_traces": [[e], [e]]}
  const std::string bytes =
      "\x80\x04}\x8c\x0d"
      "device_traces](](}\x8c\x06"
      "action\x8c\x05"
      "allocs\x94"
      "e](h" +
      std::string(1, '\0') + "ees.";
  const AllocatorSnapshot s = read_memory_snapshot(write_file(folder / "p", bytes));
  ASSERT_EQ(s.history.size(), 2u);
  EXPECT_EQ(s.history[0].size(), 1u);
  EXPECT_TRUE(s.history[1].empty());
  ASSERT_FALSE(s.warnings.empty());
  EXPECT_NE(s.warnings[0].find("1 entries"), std::string::npos) << s.warnings[0];
}

TEST(MemorySnapshot, AListOfBlocksIsNoBlock) {
  TemporaryFolder folder;
  // {"segments": [{"blocks": L}, {"blocks": [L]}]} with L = []
  const std::string bytes =
      "\x80\x04}\x8c\x08"
      "segments](}\x8c\x06"
      "blocks]\x94s}\x8c\x06"
      "blocks](h" +
      std::string(1, '\0') + "eses.";
  const AllocatorSnapshot s = read_memory_snapshot(write_file(folder / "p", bytes));
  ASSERT_EQ(s.segments.size(), 2u);
  EXPECT_TRUE(s.segments[0].blocks.empty());
  EXPECT_TRUE(s.segments[1].blocks.empty());
}

TEST(MemorySnapshot, ABlockRepeatedWithoutEndDoesNotAddUpBeyondAnInteger) {
  TemporaryFolder folder;
  // {"segments": [{"blocks": [b, b, ...]}]} with b of 2^44 bytes
  std::string bytes =
      "\x80\x04}\x8c\x08"
      "segments](}\x8c\x06"
      "blocks](}(\x8c\x05"
      "state\x8c\x08"
      "inactive\x8c\x04"
      "size\x8a\x06";
  bytes += std::string("\0\0\0\0\0\x10u\x94", 8);
  constexpr int kTimes = 600'000;
  for (int i = 0; i < kTimes; ++i) bytes += std::string("h\0", 2);
  const AllocatorSnapshot s = read_memory_snapshot(write_file(folder / "p", bytes + "eses."));
  ASSERT_EQ(s.segments.size(), 1u);
  ASSERT_EQ(s.segments[0].blocks.size(), static_cast<size_t>(kTimes) + 1);
  EXPECT_EQ(s.segments[0].blocks[0].size_bytes, int64_t{1} << 44);
  int64_t sum = 0;
  for (const AllocatorBlock& block : s.segments[0].blocks) {
    ASSERT_FALSE(__builtin_add_overflow(sum, block.size_bytes, &sum));
  }
  ASSERT_FALSE(s.warnings.empty());
  EXPECT_NE(s.warnings.back().find("numbers of bytes"), std::string::npos);
}

TEST(MemorySnapshot, ImpossibleSizesAreTakenAsNothing) {
  TemporaryFolder folder;
  // {"device_traces": [[{"action": "alloc", "size": -1}]]}
  const std::string bytes =
      "\x80\x04}\x8c\x0d"
      "device_traces]](}(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04"
      "sizeJ\xff\xff\xff\xffueas.";
  const AllocatorSnapshot s = read_memory_snapshot(write_file(folder / "p", bytes));
  ASSERT_EQ(s.history.at(0).size(), 1u);
  EXPECT_EQ(s.history[0][0].size_bytes, 0);
  ASSERT_FALSE(s.warnings.empty());
  EXPECT_NE(s.warnings[0].find("1 sizes are negative"), std::string::npos);
}

}  // namespace
}  // namespace vitrine
