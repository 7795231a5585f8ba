// Walks the paths, asks each file what it is, and collects what is left out.
#include "readers/inputs.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "readers/file_kind.h"

namespace vitrine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected =
    "a PyTorch Profiler trace (.json, .json.gz), an Nsight Systems export (.sqlite), an allocator "
    "snapshot (.pickle), a log with NCCL INFO lines, the output of nvidia-smi topo -m, a Vitrine "
    "run, or a folder of these";

// Numbers in names count as numbers.
bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t i_end = i, j_end = j;
      while (i_end < a.size() && digit(a[i_end])) ++i_end;
      while (j_end < b.size() && digit(b[j_end])) ++j_end;
      while (i + 1 < i_end && a[i] == '0') ++i;
      while (j + 1 < j_end && b[j] == '0') ++j;
      if (i_end - i != j_end - j) return i_end - i < j_end - j;
      const int order = a.compare(i, i_end - i, b, j, j_end - j);
      if (order != 0) return order < 0;
      i = i_end, j = j_end;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // "rank01" and "rank1": any order, but always the same
}

bool hidden(const fs::path& path) {
  const std::string name = path.filename().string();
  return !name.empty() && name.front() == '.';
}

std::vector<fs::path> entries(const fs::path& folder, std::vector<std::string>& warnings) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!hidden(it->path())) out.push_back(it->path());
  }
  if (error) warnings.push_back("can't list " + folder.string() + ": " + error.message());
  std::sort(out.begin(), out.end(), [](const fs::path& a, const fs::path& b) {
    return natural_less(a.string(), b.string());
  });
  return out;
}

// run.json of a Vitrine run, not some other program's.
bool is_run_folder(const fs::path& folder) {
  const fs::path file = folder / "run.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  try {
    const Json json = read_json_file(file.string());
    return json.is_object() && json.contains("model");
  } catch (const Error&) {
    return false;
  }
}

int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

class Finder {
 public:
  void given(const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
      throw IoError(path + " does not exist; expected " + kExpected);
    }
    if (fs::is_directory(status)) return folder_given(path);
    if (!fs::is_regular_file(status)) {
      throw IoError(path + " is neither a file nor a folder; expected " + kExpected);
    }
    if (!first_time(path)) return;
    const FileKind kind = recognise_file(path);
    if (kind.kind) return add(path, *kind.kind);
    throw IoError(path + " can't be read here: it is " + kind.what + ". Expected " + kExpected +
                  (kind.advice.empty() ? "" : "; " + kind.advice));
  }
  InputList list;

 private:
  struct Unknown {
    std::string path, what, advice;
  };

  void add(const fs::path& path, InputKind kind) {
    list.inputs.push_back({path.string(), kind, size_of(path)});
  }

  bool first_time(const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    const bool first = seen_.insert(error ? path.string() : real.string()).second;
    if (!first) ++met_before_;
    return first;
  }

  void folder_given(const std::string& path) {
    unknown_.clear();
    met_before_ = 0;
    const size_t before = list.inputs.size();
    const size_t last = path.find_last_not_of('/');
    folder(last == std::string::npos ? "/" : path.substr(0, last + 1), 0);
    if (list.inputs.size() == before && met_before_ == 0) {
      throw IoError(path + " holds nothing that can be read" + names() + ". Expected " + kExpected);
    }
    if (!unknown_.empty()) {
      list.warnings.push_back(format("%s: %zu file%s left out, being of no known kind",
                                     path.c_str(),
                                     unknown_.size(),
                                     unknown_.size() == 1 ? " is" : "s are") +
                              names() + ". Read are " + kExpected);
    }
  }

  // " (a.png: a PNG picture; b.txt: ...)"
  std::string names() const {
    if (unknown_.empty()) return " (no files)";
    std::vector<std::string> parts;
    for (size_t i = 0; i < unknown_.size() && i < 5; ++i) {
      parts.push_back(unknown_[i].path + ": " + unknown_[i].what +
                      (unknown_[i].advice.empty() ? "" : ", " + unknown_[i].advice));
    }
    if (unknown_.size() > 5) parts.push_back(format("and %zu more", unknown_.size() - 5));
    return " (" + join(parts, "; ") + ")";
  }

  void folder(const fs::path& path, int depth) {
    constexpr int kDeepest = 32;
    if (depth > kDeepest) {
      list.warnings.push_back(path.string() + " is nested too deeply: not looked into");
      return;
    }
    if (!first_time(path)) return;
    if (is_run_folder(path)) return run_folder(path);
    for (const fs::path& entry : entries(path, list.warnings)) {
      std::error_code error;
      if (fs::is_directory(entry, error)) {
        folder(entry, depth + 1);
      } else if (fs::is_regular_file(entry, error)) {
        file_in_folder(entry);
      }
    }
  }

  void file_in_folder(const fs::path& path) {
    if (!first_time(path)) return;
    try {
      const FileKind kind = recognise_file(path.string());
      if (kind.kind) return add(path, *kind.kind);
      unknown_.push_back({path.filename().string(), kind.what, kind.advice});
    } catch (const IoError& error) {
      unknown_.push_back({path.filename().string(), error.what(), ""});
    }
  }

  // Its metrics and checkpoints are no inputs of their own.
  void run_folder(const fs::path& path) {
    list.inputs.push_back({path.string(), InputKind::kRunFolder, size_of(path / "run.json")});
    std::error_code error;
    if (!fs::is_directory(path / "trace", error)) return;
    for (const fs::path& entry : entries(path / "trace", list.warnings)) {
      if (!fs::is_regular_file(entry, error) || !first_time(entry)) continue;
      file_of_run(entry);
    }
  }

  void file_of_run(const fs::path& path) {
    try {
      const FileKind kind = recognise_file(path.string());
      if (kind.kind == InputKind::kKineto) return add(path, InputKind::kKineto);
      unknown_.push_back({path.filename().string(), kind.kind ? "no trace" : kind.what, ""});
    } catch (const IoError& error) {
      unknown_.push_back({path.filename().string(), error.what(), ""});
    }
  }

  std::set<std::string> seen_;
  std::vector<Unknown> unknown_;  // of the folder given last
  size_t met_before_ = 0;         // files of it that an earlier path has given already
};

}  // namespace

const char* input_kind_name(InputKind kind) {
  switch (kind) {
    case InputKind::kKineto:
      return "profiler trace";
    case InputKind::kNsys:
      return "Nsight Systems export";
    case InputKind::kMemorySnapshot:
      return "allocator snapshot";
    case InputKind::kNcclLog:
      return "NCCL log";
    case InputKind::kTopology:
      return "table of links";
    case InputKind::kRunFolder:
      return "Vitrine run";
  }
  return "";
}

InputList find_inputs(const std::vector<std::string>& paths) {
  if (paths.empty()) throw IoError(std::string("no input is given; expected ") + kExpected);
  Finder finder;
  for (const std::string& path : paths) finder.given(path);
  return std::move(finder.list);
}

}  // namespace vitrine
