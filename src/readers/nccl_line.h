// One line of NCCL's log, taken apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

// "host:pid:tid [device] NCCL INFO message"
struct NcclMessage {
  std::string host;     // "" = the line has no whole prefix
  std::string process;  // "host:pid"
  std::string thread;   // "host:pid:tid"
  bool warn = false;
  std::string_view text;    // of the line
  size_t prefix_begin = 0;  // where the prefix begins in the line
};

// All messages in a line, in order: more than one where ranks wrote into each other. `text` of each
// ends where the next one's prefix begins.
std::vector<NcclMessage> split_nccl_line(std::string_view line);

// The text behind `key` up to a blank, "" = no such key: value_after("rank 3 nranks 8", "rank ").
std::string_view value_after(std::string_view text, std::string_view key);
// The whole number there, `missing` when there is none.
int32_t number_after(std::string_view text, std::string_view key, int32_t missing);

}  // namespace vitrine
