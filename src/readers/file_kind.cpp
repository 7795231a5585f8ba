// Magic numbers, then the first keys of JSON, then words of text.
#include "readers/file_kind.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/contains.h"
#include "readers/line_reader.h"
#include "readers/nccl_log.h"
#include "readers/topology_text.h"

namespace vitrine {

namespace {

constexpr size_t kLookedAt = size_t{1} << 20;

struct Magic {
  std::string_view bytes;
  const char* what;
  const char* advice;
};

using namespace std::string_view_literals;

constexpr const char* kExport =
    "export it first: nsys export --type sqlite -o report.sqlite report.nsys-rep";
constexpr const char* kUnpack = "unpack it and give the folder";
constexpr Magic kMagics[] = {
    {"\x89PNG"sv, "a PNG picture", ""},
    {"\xff\xd8\xff"sv, "a JPEG picture", ""},
    {"GIF8"sv, "a GIF picture", ""},
    {"%PDF"sv, "a PDF document", ""},
    {"PK\x03\x04"sv, "a zip archive (PyTorch's checkpoints are such)", kUnpack},
    {"\x28\xb5\x2f\xfd"sv, "compressed with zstd", "decompress it with zstd -d"},
    {"\xfd"
     "7zXZ"sv,
     "compressed with xz",
     "decompress it with xz -d"},
    {"BZh"sv, "compressed with bzip2", "decompress it with bzip2 -d"},
    {"\x7f"
     "ELF"sv,
     "a program",
     ""},
    {"\x89HDF"sv, "an HDF5 file", ""},
    {"PAR1"sv, "a Parquet file", "export Nsight reports with nsys export --type sqlite"},
    {"\x93NUMPY"sv, "a NumPy array", ""},
    {"QDSTRM"sv, "a raw recording of Nsight Systems", kExport},
    {"NVR\0"sv, "a report of Nsight Compute", "Nsight Systems records whole runs: nsys profile"},
};

// The header's length as 8 bytes, little end first, then the header, a JSON object. Text has no
// zeros, and no header has 4 GiB.
bool is_safetensors(std::string_view text) {
  return text.size() > 9 && text.substr(4, 4) == "\0\0\0\0"sv && text.substr(8, 2) == "{\"";
}

std::string_view without_space(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

FileKind json_kind(std::string_view text) {
  for (const std::string_view key : {"\"traceEvents\"",
                                     "\"schemaVersion\"",
                                     "\"deviceProperties\"",
                                     "\"distributedInfo\"",
                                     "\"baseTimeNanoseconds\"",
                                     "\"displayTimeUnit\""}) {
    if (text.front() == '{' && contains(text, key)) return {InputKind::kKineto, "", ""};
  }
  // Old TensorBoard traces: a bare list of events.
  const std::string_view inside = without_space(text.substr(1));
  if (text.front() == '[' && !inside.empty() && inside.front() == '{' && contains(text, "\"ph\"") &&
      contains(text, "\"ts\"")) {
    return {InputKind::kKineto, "", ""};
  }
  if (text.front() == '[' && !inside.empty() && inside.front() == ']') {
    return {std::nullopt, "an empty JSON list", "was the profiler stopped before its first step?"};
  }
  if (text.front() == '[' && !inside.empty() && inside.front() == '[') {
    return {std::nullopt,
            "a JSON list of lists (the profiler's memory timeline is such)",
            "give the allocator's snapshot instead: "
            "torch.cuda.memory._dump_snapshot(\"rank0.pickle\")"};
  }
  return {std::nullopt, "JSON, but no trace: it has no \"traceEvents\"", ""};
}

// A few control characters make no binary file of a log, and neither does a run of zeros: a log
// that is cut while its job writes on has one.
bool is_text(std::string_view text) {
  const size_t zeros = std::min(text.find_first_not_of('\0'), text.size());
  const std::string_view sample = text.substr(zeros, 64 << 10);
  size_t odd = 0;
  char before = 0;
  for (const char c : sample) {
    const auto u = static_cast<unsigned char>(c);
    const bool control =
        u < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\x1b' && c != '\f' && c != '\b';
    odd += control && !(c == '\0' && before == '\0');
    before = c;
  }
  return !sample.empty() && odd <= std::max<size_t>(2, sample.size() / 200);
}

FileKind text_kind(const std::string& path, std::string_view beginning) {
  if (looks_like_topology(beginning)) {
    // A job's output may show the table, and NCCL's lines too, which say more.
    if (!contains(beginning, " NCCL INFO ")) return {InputKind::kTopology, "", ""};
    return {InputKind::kNcclLog, "", ""};
  }
  LineReader reader(path);
  std::string_view line;
  for (size_t bytes = 0; bytes < kSearchedBytes && reader.next(line); bytes += line.size() + 1) {
    if (is_nccl_line(line)) return {InputKind::kNcclLog, "", ""};
  }
  return {std::nullopt,
          "text without a line of NCCL or a table of links",
          "of a job's output, NCCL's lines are read: run it with NCCL_DEBUG=INFO"};
}

}  // namespace

FileKind recognise_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (!error && size == 0) return {std::nullopt, "empty", "was the job ended before it wrote?"};
  const auto [start, problem] = read_beginning(path, kLookedAt);
  if (start.empty()) {
    if (problem.empty()) return {std::nullopt, "gzip of an empty file", ""};
    return {std::nullopt,
            "damaged gzip of which no text can be had: " + problem,
            "copy or record it again"};
  }
  if (start.starts_with(std::string_view("SQLite format 3\0", 16))) {
    return {InputKind::kNsys, "", ""};
  }
  for (const Magic& magic : kMagics) {
    if (start.starts_with(magic.bytes)) return {std::nullopt, magic.what, magic.advice};
  }
  if (start.size() > 262 && std::string_view(start).substr(257, 5) == "ustar") {
    return {std::nullopt, "a tar archive", kUnpack};
  }
  if (is_safetensors(start)) return {std::nullopt, "a safetensors file", ""};
  const auto version = static_cast<unsigned char>(start.size() > 1 ? start[1] : 0);
  if (start[0] == '\x80' && version >= 2 && version <= 5) {
    return {InputKind::kMemorySnapshot, "", ""};
  }
  // By name only to advise: Nsight's own format has no public description.
  if (path.ends_with(".nsys-rep") || path.ends_with(".qdrep")) {
    return {std::nullopt, "a report of Nsight Systems in its own format", kExport};
  }
  const std::string_view text = without_space(start);
  if (text.empty()) return {std::nullopt, "empty but for blanks", ""};
  if ((text.front() == '{' || text.front() == '[')) {
    const FileKind kind = json_kind(text);
    // Launchers begin lines with "[default0]: ..."; that is no JSON.
    if (kind.kind || text.front() == '{') return kind;
    const std::string_view inside = without_space(text.substr(1));
    if (!inside.empty() && std::string_view("[{]").find(inside.front()) != std::string_view::npos)
      return kind;
  }
  if (is_text(start)) return text_kind(path, start);
  return {std::nullopt, "binary data of an unknown kind", ""};
}

}  // namespace vitrine
