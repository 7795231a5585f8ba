// Reads PyTorch's allocator snapshots: torch.cuda.memory._dump_snapshot("rank0.pickle").
#pragma once

#include <string>

#include "timeline/allocator_snapshot.h"

namespace vitrine {

// Plain or gzipped, protocols 2 to 5, by blocks; frames and stacks that are equal are kept once.
// Reads too the bare list of torch.cuda.memory_snapshot(), which has no history. The rank is the
// number after "rank" in the file's name, else -1. Keys that are not known are ignored; entries of
// the history that are no event are counted in `warnings`. `history_wrapped` is found out: memory
// is freed, or still in use, whose allocation the history does not hold.
// Throws IoError that names the file: see Unpickler; or it is a pickle of something else.
AllocatorSnapshot read_memory_snapshot(const std::string& path);

}  // namespace vitrine
