// What was done with one key of a configuration: every key gets an answer, none is dropped in
// silence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

struct Remark {
  enum class Status : uint8_t {
    kUsed,     // means here what it means in DeepSpeed
    kIgnored,  // known, and without effect on results here; `note` says why
    kNotYet,  // would change numbers or what fits in memory, and is not available; training refuses
    kWrong,   // unknown, of the wrong type, or contradicted by another key
  } status = Status::kUsed;
  std::string key;  // dotted path
  std::string note;
};

const char* remark_status_name(Remark::Status status);
// One line a remark of the given statuses, "ignored  zero_optimization.sub_group_size: ...".
std::string remarks_text(const std::vector<Remark>& remarks,
                         const std::vector<Remark::Status>& statuses);

}  // namespace vitrine
