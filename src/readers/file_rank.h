// The rank that a file's name tells.
#pragma once

#include <cstdint>
#include <string_view>

namespace vitrine {

// The number behind the first "rank" that has one, else behind the first "worker":
// "rank-70.Mar_25", "memory_rank_3.pickle.gz", "worker0_step_12.json". Of a path only the last part
// is looked at. Capitals count as small letters; numbers of more than 8 digits are no ranks. -1 =
// none.
int32_t rank_in_file_name(std::string_view path);

}  // namespace vitrine
