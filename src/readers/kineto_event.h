// One event of a Kineto trace as it stands in the file: views into its text.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

struct KinetoEvent {
  char phase = 0;
  std::string_view category, name, pid, tid, ts, duration;
  bool named = false;
  bool passed_over = false;    // not wanted, so not read to its end
  const char* args = nullptr;  // passed over, to be read when the event is known

  // Arguments; numbers as text, empty = not there.
  std::string_view kind, label, block, title, labels;
  std::string_view collective, dtype, group, description, ranks, shapes;
  std::string_view correlation, bytes, step, micro_batch;
  std::string_view in_elements, out_elements, group_size, sequence, peer, rank, sent_bytes;
  std::string_view allocated, reserved, device, stream, device_type, address;
  std::vector<std::pair<std::string_view, std::string_view>>* series = nullptr;  // of counters

  // Where the value of an argument goes; null = it is not wanted.
  std::string_view* argument(std::string_view key);
};

}  // namespace vitrine
