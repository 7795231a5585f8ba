// What a path holds is told by its content, and what can't be used is named.
#include "readers/inputs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "readers/file_rank.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

const std::string kTrace = R"({"schemaVersion": 1, "traceEvents": []})";

std::string refusal(const std::vector<std::string>& paths) {
  try {
    find_inputs(paths);
  } catch (const IoError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Inputs, KindsAreToldByContentWhateverTheName) {
  TemporaryFolder folder;
  const auto kind = [](const std::string& path) { return find_inputs({path}).inputs.at(0).kind; };
  EXPECT_EQ(kind(write_file(folder / "a.png", kTrace)), InputKind::kKineto);
  EXPECT_EQ(kind(write_gzip(folder / "b.txt", kTrace)), InputKind::kKineto);
  EXPECT_EQ(kind(write_file(folder / "c", R"([{"ph": "X", "ts": 1, "dur": 2}])")),
            InputKind::kKineto);
  EXPECT_EQ(kind(write_file(folder / "d.json", std::string("SQLite format 3\0....", 20))),
            InputKind::kNsys);
  EXPECT_EQ(kind(write_file(folder / "e.log", std::string("\x80\x04\x95", 3))),
            InputKind::kMemorySnapshot);
  EXPECT_EQ(kind(write_gzip(folder / "f.json", std::string("\x80\x02}", 3))),
            InputKind::kMemorySnapshot);
  EXPECT_EQ(kind(write_file(folder / "g.sqlite", "[default0]:h:1:1 [0] NCCL INFO hello\n")),
            InputKind::kNcclLog);
  EXPECT_EQ(kind(write_file(folder / "h", "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n")),
            InputKind::kTopology);
}

TEST(Inputs, SafetensorsAreToldFromJsonWhoseNinthByteIsABrace) {
  TemporaryFolder folder;
  const auto kind = [](const std::string& path) { return find_inputs({path}).inputs.at(0).kind; };
  EXPECT_EQ(kind(write_file(folder / "a", R"({"meta":{"b": 1}, "traceEvents": []})")),
            InputKind::kKineto);
  EXPECT_EQ(kind(write_file(folder / "b", "[\n      {\"ph\": \"X\", \"ts\": 1, \"dur\": 2}]")),
            InputKind::kKineto);
  const std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string length{static_cast<char>(header.size()), 0, 0, 0, 0, 0, 0, 0};
  EXPECT_NE(
      refusal({write_file(folder / "c", length + header + "abcd")}).find("a safetensors file"),
      std::string::npos);
}

TEST(FileRank, IsTheNumberBehindRankElseBehindWorker) {
  EXPECT_EQ(rank_in_file_name("rank-70.Mar_25_12_01_58.123.pt.trace.json.gz"), 70);
  EXPECT_EQ(rank_in_file_name("/runs/rank9/memory_rank_3.pickle.gz"), 3);
  EXPECT_EQ(rank_in_file_name("Rank12.sqlite"), 12);
  EXPECT_EQ(rank_in_file_name("worker0_step_12.json"), 0);
  EXPECT_EQ(rank_in_file_name("worker0_rank5.json"), 5);
  EXPECT_EQ(rank_in_file_name("ranking_rank4.json"), 4);
  EXPECT_EQ(rank_in_file_name("rank1_of_rank8.json"), 1);
  EXPECT_EQ(rank_in_file_name("/runs/rank9/trace.json"), -1);
  EXPECT_EQ(rank_in_file_name("rank"), -1);
  EXPECT_EQ(rank_in_file_name("rank1795972659.json"), -1);
}

TEST(Inputs, NcclsLinesAreFoundDeepInAJobsOutput) {
  TemporaryFolder folder;
  std::string text;
  while (text.size() < (size_t{3} << 20)) text += "iteration | loss 2.5 | tokens per second 1000\n";
  write_gzip(folder / "job.out", text + "n1:1:1 [0] NCCL INFO Using network IB\n");
  EXPECT_EQ(find_inputs({folder / "job.out"}).inputs[0].kind, InputKind::kNcclLog);
}

TEST(Inputs, FoldersAreReadInNaturalOrderWithoutHiddenFiles) {
  TemporaryFolder folder;
  fs::create_directories(folder / "traces/.cache");
  for (const char* name : {"rank10", "rank2", "rank0"}) {
    write_file(folder / ("traces/" + std::string(name) + ".json"), kTrace);
  }
  write_file(folder / "traces/.hidden.json", kTrace);
  write_file(folder / "traces/.cache/rank1.json", kTrace);
  write_file(folder / "notes.md", "nothing\n");
  const InputList list = find_inputs({folder.path() + "/"});
  std::vector<std::string> names;
  for (const Input& input : list.inputs) names.push_back(fs::path(input.path).filename());
  EXPECT_EQ(names, (std::vector<std::string>{"rank0.json", "rank2.json", "rank10.json"}));
  EXPECT_EQ(list.inputs[0].bytes, static_cast<int64_t>(kTrace.size()));
  ASSERT_EQ(list.warnings.size(), 1u);
  EXPECT_NE(list.warnings[0].find("notes.md: text without"), std::string::npos);
}

TEST(Inputs, OnlyFiveUnknownFilesAreNamed) {
  TemporaryFolder folder;
  write_file(folder / "trace.json", kTrace);
  for (int i = 0; i < 8; ++i) {
    write_file(folder / ("picture" + std::to_string(i)), "\x89PNG\r\n\x1a\n");
  }
  const InputList list = find_inputs({folder.path()});
  EXPECT_EQ(list.inputs.size(), 1u);
  ASSERT_EQ(list.warnings.size(), 1u);
  EXPECT_NE(list.warnings[0].find("8 files are left out"), std::string::npos);
  EXPECT_NE(list.warnings[0].find("picture4: a PNG picture; and 3 more"), std::string::npos);
  EXPECT_EQ(list.warnings[0].find("picture5"), std::string::npos);
}

TEST(Inputs, ARunFolderComesOnceWithItsTraces) {
  TemporaryFolder folder;
  fs::create_directories(folder / "run/trace");
  write_file(folder / "run/run.json", R"({"name": "a", "model": {"family": "decoder"}})");
  write_file(folder / "run/metrics.jsonl", "{}\n");
  write_file(folder / "run/trace/rank1.json", kTrace);
  write_file(folder / "run/trace/rank0.json", kTrace);
  const InputList list = find_inputs({folder.path()});
  ASSERT_EQ(list.inputs.size(), 3u);
  EXPECT_EQ(list.inputs[0].kind, InputKind::kRunFolder);
  EXPECT_EQ(fs::path(list.inputs[0].path).filename(), "run");
  EXPECT_EQ(list.inputs[1].kind, InputKind::kKineto);
  EXPECT_EQ(fs::path(list.inputs[1].path).filename(), "rank0.json");
  EXPECT_TRUE(list.warnings.empty());
}

TEST(Inputs, AnUnreadableFileAmongARunsTracesIsNamedAndTheOthersAreGiven) {
  TemporaryFolder folder;
  fs::create_directories(folder / "run/trace");
  write_file(folder / "run/run.json", R"({"name": "a", "model": {"family": "decoder"}})");
  write_file(folder / "run/trace/rank0.json", kTrace);
  // Not gzip behind its mark.
  write_file(folder / "run/trace/rank1.json", "\x1f\x8b\x08 and then something else altogether");
  const InputList list = find_inputs({folder / "run"});
  ASSERT_EQ(list.inputs.size(), 2u);
  EXPECT_EQ(fs::path(list.inputs[1].path).filename(), "rank0.json");
  ASSERT_EQ(list.warnings.size(), 1u);
  EXPECT_NE(list.warnings[0].find("rank1.json"), std::string::npos) << list.warnings[0];
}

TEST(Inputs, AFileThatIsMetTwiceIsGivenOnce) {
  TemporaryFolder folder;
  write_file(folder / "trace.json", kTrace);
  EXPECT_EQ(find_inputs({folder / "trace.json", folder.path()}).inputs.size(), 1u);
}

TEST(Inputs, WhatCannotBeReadIsNamedWithAdvice) {
  TemporaryFolder folder;
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("xpected"), std::string::npos) << message;
  };
  expect(refusal({folder / "absent"}), "does not exist");
  expect(refusal({}), "no input");
  expect(refusal({write_file(folder / "empty.json", "")}), "it is empty");
  expect(refusal({write_file(folder / "t.json", "\x89PNG\r\n\x1a\n0000")}), "a PNG picture");
  expect(refusal({write_file(folder / "c.json", "{\"a\": 1}")}), "no \"traceEvents\"");
  expect(refusal({write_file(folder / "m.json", "[[1, 2, 3, 4]]")}), "_dump_snapshot");
  expect(refusal({write_file(folder / "x.nsys-rep", std::string("\1\2\0\3", 4))}),
         "nsys export --type sqlite");
  std::string tar(512, '\0');
  tar.replace(257, 5, "ustar");
  tar[0] = 'a';
  expect(refusal({write_gzip(folder / "t.tar.gz", tar)}), "unpack");
  expect(refusal({write_file(folder / "z", std::string("\0\1\2\3\4\5\6\7", 8))}), "binary data");
  TemporaryFolder other;
  expect(refusal({other.path()}), "(no files)");
  write_file(other / "a.pdf", "%PDF-1.4");
  expect(refusal({other.path()}), "a.pdf: a PDF document");
}

TEST(Inputs, ZeroBytesMakeNoBinaryFileOfALog) {
  TemporaryFolder folder;
  const auto kind = [](const std::string& path) { return find_inputs({path}).inputs.at(0).kind; };
  const std::string line = "h:1:1 [0] NCCL INFO hello\n";
  EXPECT_EQ(kind(write_file(folder / "a", line + '\0' + line)), InputKind::kNcclLog);
  EXPECT_EQ(kind(write_file(folder / "b", std::string(100'000, '\0') + line)), InputKind::kNcclLog);
  EXPECT_EQ(kind(write_file(folder / "c", line + std::string(100'000, '\0') + line)),
            InputKind::kNcclLog);
  EXPECT_NE(refusal({write_file(folder / "d", std::string(100, '\0'))}).find("binary data"),
            std::string::npos);
}

TEST(Inputs, DamagedGzipIsReadAsFarAsItGoesAndNeverCalledEmpty) {
  TemporaryFolder folder;
  const std::string whole = file_content(write_gzip(folder / "t.json.gz", kTrace));
  std::string wrong = whole;
  wrong[wrong.size() - 8] = static_cast<char>(wrong[wrong.size() - 8] ^ 1);
  const InputList list = find_inputs({write_file(folder / "wrong.json.gz", wrong)});
  ASSERT_EQ(list.inputs.size(), 1u);
  EXPECT_EQ(list.inputs[0].kind, InputKind::kKineto);
  for (const size_t size : {size_t{2}, size_t{5}, size_t{10}}) {
    const std::string error = refusal({write_file(folder / "cut.gz", whole.substr(0, size))});
    EXPECT_NE(error.find("damaged gzip"), std::string::npos) << error;
    EXPECT_NE(error.find("cut short after 0 bytes"), std::string::npos) << error;
  }
  EXPECT_NE(refusal({write_gzip(folder / "e.gz", "")}).find("gzip of an empty file"),
            std::string::npos);
}

TEST(InputsReal, EveryReferenceFileIsRecognised) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference data: set VITRINE_SHARED_DATA";
  const auto kinds = [&](const std::string& folder, InputKind kind) {
    size_t count = 0;
    for (const Input& input : find_inputs({data + folder}).inputs) {
      EXPECT_EQ(input.kind, kind) << input.path;
      ++count;
    }
    return count;
  };
  EXPECT_GE(kinds("/topo", InputKind::kTopology), 30u);
  EXPECT_EQ(kinds("/nsys", InputKind::kNsys), 3u);
  EXPECT_EQ(kinds("/logs", InputKind::kNcclLog), 4u);
  EXPECT_EQ(kinds("/traces/h200/ddp_healthy", InputKind::kKineto), 2u);
  EXPECT_GE(kinds("/traces/public", InputKind::kKineto), 15u);
  EXPECT_EQ(kinds("/traces/h200/memory_snapshot_rank0.pickle.gz", InputKind::kMemorySnapshot), 1u);
}

}  // namespace
}  // namespace vitrine
