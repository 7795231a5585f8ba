// Every configuration key of DeepSpeed 0.19 with its type and what happens to it here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/remark.h"
#include "core/json_fwd.h"

namespace vitrine {

enum class KeyType : uint8_t {
  kBool,
  kInteger,  // whole floats such as 5e8 too
  kNumber,
  kText,
  kList,
  kSection,  // an object whose keys are in the table
  kOpaque,   // anything; what is inside is not looked at
};

struct KeyRule {
  const char* path;
  KeyType type;
  Remark::Status support;
  // For kNotYet and kIgnored: JSON of the value that asks for nothing ("" = none).
  const char* neutral = "";
  const char* note = "";
  const char* choices = "";  // of kText: "a|b|c"
};

std::span<const KeyRule> deepspeed_keys();
const KeyRule* find_deepspeed_key(const std::string& path);
// The keys of one level: "" for the top.
std::vector<std::string> deepspeed_keys_of(const std::string& section);

// Checks names and types of `config`, an object of DeepSpeed keys, and says what becomes of each.
// Keys of `own` (top level) are skipped. Never throws for what the file says.
std::vector<Remark> check_key_names(const Json& config, const std::vector<std::string>& own);

}  // namespace vitrine
