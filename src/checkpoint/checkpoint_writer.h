// Saves a checkpoint from many ranks so that at any moment of a crash the last good one stays
// usable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace vitrine {

// Every rank: make a writer, add() its pieces, finish_rank(), send the result's text to rank 0.
// Rank 0, with all results in hand: commit(). Nothing counts before commit() has renamed the folder
//   <folder>/.step-000100.tmp  ->  <folder>/step-000100
// and replaced the file <folder>/latest. One save at a time in one folder.
class CheckpointWriter {
 public:
  // Makes the folders; rank 0 also removes what broken saves of other steps have left. Throws
  // IoError.
  CheckpointWriter(std::string folder, int64_t step, int32_t rank, int32_t world_size);

  // Elements [begin, end) of the row-major tensor of `global_shape`. `data` must live until
  // finish_rank(). Pieces of several ranks may overlap when they hold the same values. Throws
  // ShapeError.
  void add(const std::string& name,
           StateKind kind,
           const std::vector<int64_t>& global_shape,
           DType dtype,
           int64_t begin,
           int64_t end,
           const void* data);

  // Writes this rank's file and syncs it. Throws IoError (also for a full disk).
  RankResult finish_rank();

  // Rank 0 alone, with the results of all ranks (itself among them, any order). `keep_last` > 0
  // then deletes all but so many newest checkpoints. Throws ConfigError when a rank is missing.
  void commit(const std::vector<RankResult>& results, const Json& extra, int keep_last = 0);

  std::string final_path() const { return folder_ + "/" + step_name_; }

 private:
  std::string temporary_path() const { return folder_ + "/." + step_name_ + ".tmp"; }

  std::string folder_, step_name_;
  int64_t step_;
  int32_t rank_, world_size_;
  SafetensorsWriter writer_;
  std::vector<Piece> pieces_;
};

// "step-000100"
std::string checkpoint_step_name(int64_t step);
// Committed checkpoints of a folder as (step, path), oldest first.
std::vector<std::pair<int64_t, std::string>> list_checkpoints(const std::string& folder);

}  // namespace vitrine
