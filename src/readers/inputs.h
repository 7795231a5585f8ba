// Finds what can be read in the files and folders that a user names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

enum class InputKind { kKineto, kNsys, kMemorySnapshot, kNcclLog, kTopology, kRunFolder };
// "profiler trace", "Nsight Systems export", ... for messages.
const char* input_kind_name(InputKind kind);

struct Input {
  std::string path;
  InputKind kind = InputKind::kKineto;
  int64_t bytes = 0;  // on disk; of a run folder, of its run.json
};

struct InputList {
  std::vector<Input> inputs;
  std::vector<std::string> warnings;
};

// Files as given; folders with everything below them, hidden files left out, in natural order
// (rank2 before rank10). A kind is recognised by a file's content, gzipped or not, never by its
// name. A folder with a Vitrine run's run.json is given once as kRunFolder, followed by the traces
// in its trace/. A file that is met twice is given once.
//
// Files inside folders that are of no known kind, empty or unreadable are named in one warning a
// folder. Throws IoError for a path given by name that is missing, empty or of no known kind (what
// it is, what is expected, what to do), for a folder in which nothing can be read, and when `paths`
// is empty.
InputList find_inputs(const std::vector<std::string>& paths);

}  // namespace vitrine
