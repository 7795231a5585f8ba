// Splits a description into words and looks for the directions of parallelism.
#include "analysis/group_roles.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace vitrine {
namespace {

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(word);
      word.clear();
    }
  }
  return words;
}

}  // namespace

std::string role_of_description(const std::string& description) {
  const std::set<std::string> words = words_of(description);
  const auto any = [&](std::initializer_list<const char*> list) {
    return std::any_of(list.begin(), list.end(), [&](const char* w) { return words.count(w) > 0; });
  };
  if (any({"default"})) return "world";
  if (any({"embedding"})) return "embedding";
  const bool tensor = any({"tensor", "tp"});
  const bool pipeline = any({"pipeline", "pp", "pipe"});
  const bool context = any({"context", "cp", "ulysses", "sp"});
  const bool data = any({"data", "dp", "fsdp", "ddp", "zero", "hsdp"});
  const bool expert = any({"expert", "ep", "moe"});
  if (expert) {
    if (tensor && (data || pipeline || any({"and"}))) return "combined";
    if (data) return "expert_data";
    return tensor ? "expert_tensor" : "expert";
  }
  if (data && context && !tensor && !pipeline) return "data_context";
  if (static_cast<int>(tensor) + static_cast<int>(pipeline) + static_cast<int>(context) +
          static_cast<int>(data) >
      1) {
    return "combined";
  }
  if (tensor) return "tensor";
  if (pipeline) return "pipeline";
  if (context) return "context";
  if (data || says_replicate(description) || says_shard(description)) return "data";
  // Megatron-LM's group of tensor and pipeline ranks together.
  return any({"model"}) && any({"parallel"}) ? "combined" : "";
}

bool says_replicate(const std::string& description) {
  return words_of(description).count("replicate") > 0;
}
bool says_shard(const std::string& description) { return words_of(description).count("shard") > 0; }

}  // namespace vitrine
