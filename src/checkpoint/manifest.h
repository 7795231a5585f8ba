// manifest.json of a checkpoint: which element range of which state lies where. Format:
// docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/json.h"

namespace vitrine {

constexpr int kCheckpointVersion = 1;

// What a state is: the value in use, the fp32 copy that the optimizer updates, or one of its
// moments.
enum class StateKind : uint8_t { kParameter, kMaster, kExpAvg, kExpAvgSq };
const char* state_kind_name(StateKind kind);  // "parameter", "master", "exp_avg", "exp_avg_sq"
StateKind state_kind_from_name(const std::string& name);  // throws ConfigError

// Elements [begin, end) of the row-major tensor `name`, stored without gaps at `offset` of file
// `file`.
struct Piece {
  std::string name;
  StateKind kind = StateKind::kParameter;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0, end = 0;
  int32_t file = 0;     // index into Manifest::files (in a RankResult: always 0, the rank's own)
  uint64_t offset = 0;  // from the start of the file

  uint64_t bytes() const { return static_cast<uint64_t>(end - begin) * dtype_bytes(dtype); }
};

struct CheckpointFile {
  std::string name;  // "rank00000.safetensors"
  uint64_t bytes = 0;
  std::string sha256;
};

struct Manifest {
  int64_t step = 0;
  int32_t world_size = 1;
  std::vector<CheckpointFile> files;
  std::vector<Piece> pieces;
  Json extra = Json::object();  // schedule, loss scale, data position, random state, configuration
};

// What one rank has written; text form to send it to rank 0.
struct RankResult {
  int32_t rank = 0;
  CheckpointFile file;
  std::vector<Piece> pieces;

  std::string to_text() const;
  static RankResult from_text(const std::string& text);  // throws ConfigError
};

std::string to_text(const Manifest& manifest);
// `source` names the text in errors. Checks version, types, ranges and that pieces lie inside their
// file. Throws IoError.
Manifest manifest_from_text(const std::string& text, const std::string& source);

}  // namespace vitrine
