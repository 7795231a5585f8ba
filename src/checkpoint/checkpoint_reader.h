// Opens a committed checkpoint and reads any element range of any state, whatever world size wrote
// it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/durable_file.h"
#include "checkpoint/manifest.h"

namespace vitrine {

struct StateInfo {
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  int64_t elements = 1;
};

class CheckpointReader {
 public:
  // Presence and size of every file are always checked; kHashes also reads them whole against their
  // SHA-256.
  enum class Verify { kSizes, kHashes };

  // `path` is a checkpoint (a folder with manifest.json) or the folder of checkpoints, whose
  // `latest` is followed; when that is missing or points nowhere, the newest committed one is
  // taken. Throws IoError that names the broken file, and other checkpoints that are there.
  static CheckpointReader open(const std::string& path, Verify verify = Verify::kHashes);

  int64_t step() const { return manifest_.step; }
  int32_t world_size() const { return manifest_.world_size; }
  const Json& extra() const { return manifest_.extra; }
  const std::string& path() const { return path_; }

  using Key = std::pair<std::string, StateKind>;
  const std::map<Key, StateInfo>& states() const { return states_; }
  bool has(const std::string& name, StateKind kind) const { return states_.contains({name, kind}); }
  // Throws IoError with the nearest name.
  const StateInfo& info(const std::string& name, StateKind kind) const;

  // Elements [begin, end) into `out` as `dtype` (converted when it was saved in another floating
  // type). Throws IoError when no pieces cover a part of it, ShapeError when the range lies outside
  // the tensor.
  void read(const std::string& name,
            StateKind kind,
            int64_t begin,
            int64_t end,
            DType dtype,
            void* out) const;

 private:
  CheckpointReader(std::string path, Manifest manifest);
  void verify(Verify how) const;
  std::span<const std::byte> file(int32_t index) const {
    return std::as_bytes(files_[static_cast<size_t>(index)].bytes());
  }

  std::string path_;
  Manifest manifest_;
  std::vector<MappedFile> files_;  // as in the manifest
  std::map<Key, StateInfo> states_;
  std::map<Key, std::vector<Piece>> pieces_;  // by begin
};

}  // namespace vitrine
