// Names and types of DeepSpeed keys against the table.
#include <algorithm>
#include <cmath>

#include "config/deepspeed_keys.h"
#include "core/format.h"
#include "core/json.h"

namespace vitrine {
namespace {

// Names that articles, old releases or the documentation have and the code has not.
struct Misnomer {
  const char* path;
  const char* note;
};
constexpr Misnomer kMisnomers[] = {
    {"zero_optimization.offload_optimizer.fast_readwrite",
     "DeepSpeed has no such key; meant may be fast_init, pipeline_read or pipeline_write"},
    {"zero_optimization.offload_param.fast_readwrite", "DeepSpeed has no such key; remove it"},
    {"zero_optimization.fast_readwrite",
     "DeepSpeed has no such key; meant may be fast_init, pipeline_read or pipeline_write under "
     "offload_optimizer"},
    {"zero_optimization.grad_hooks", "documented, but not a key of DeepSpeed's code; remove it"},
    {"bf16.check_overflow", "DeepSpeed calls it check_grad_overflow now"},
    {"aio.thread_count", "documented, but ignored by DeepSpeed's code; it is intra_op_parallelism"},
    {"optimizer.params.max_grad_norm",
     "not a key of the optimizer: use gradient_clipping at the top"},
    {"optimizer.params.learning_rate", "DeepSpeed calls it lr"},
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

// "" when `value` is of the rule's type, else what was expected.
std::string expected_instead(const KeyRule& rule, const Json& value) {
  switch (rule.type) {
    case KeyType::kBool:
      return value.is_boolean() ? "" : "true or false";
    case KeyType::kInteger:
      if (value.is_number_integer()) return "";
      if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()))
        return "";
      return "a whole number";
    case KeyType::kNumber:
      return value.is_number() ? "" : "a number";
    case KeyType::kList:
      return value.is_array() ? "" : "a list [...]";
    case KeyType::kSection:
      return value.is_object() ? "" : "an object {...}";
    case KeyType::kOpaque:
      return "";
    case KeyType::kText: {
      if (!value.is_string()) return "a text";
      const std::string choices = rule.choices;
      if (choices.empty()) return "";
      const auto allowed = split(choices, '|');
      if (std::find(allowed.begin(), allowed.end(), value.get<std::string>()) != allowed.end())
        return "";
      return "one of " + join(allowed, ", ");
    }
  }
  return "";
}

Remark unknown(const std::string& path, const std::string& section, const std::string& key) {
  for (const Misnomer& misnomer : kMisnomers) {
    if (path == misnomer.path) return {Remark::Status::kWrong, path, misnomer.note};
  }
  const std::string near = nearest_name(key, deepspeed_keys_of(section));
  if (!near.empty()) {
    return {Remark::Status::kWrong, path, "unknown key; did you mean \"" + near + "\"?"};
  }
  // Keys pasted one level too high or too low.
  for (const KeyRule& rule : deepspeed_keys()) {
    const std::string known = rule.path;
    if (known.size() > key.size() && known.ends_with("." + key)) {
      return {Remark::Status::kWrong, path, "unknown key here; there is \"" + known + "\""};
    }
  }
  return {Remark::Status::kWrong,
          path,
          "unknown key; known here: " + join(deepspeed_keys_of(section), ", ")};
}

void check_object(const Json& object,
                  const std::string& section,
                  const std::vector<std::string>& own,
                  std::vector<Remark>& remarks) {
  for (const auto& [key, value] : object.items()) {
    if (section.empty() && std::find(own.begin(), own.end(), key) != own.end()) continue;
    const std::string path = section.empty() ? key : section + "." + key;
    const KeyRule* rule = find_deepspeed_key(path);
    if (!rule) {
      remarks.push_back(unknown(path, section, key));
      continue;
    }
    if (value.is_string() && value.get<std::string>() == "auto" &&
        rule->type != KeyType::kSection) {
      remarks.push_back({Remark::Status::kUsed, path, "auto: as if left out"});
      continue;
    }
    // Null is Python's None: not given.
    if (value.is_null() && rule->type != KeyType::kOpaque) {
      remarks.push_back({Remark::Status::kUsed, path, "null: as if left out"});
      continue;
    }
    if (const std::string expected = expected_instead(*rule, value); !expected.empty()) {
      remarks.push_back(
          {Remark::Status::kWrong, path, "expected " + expected + ", got " + value.dump()});
      continue;
    }
    if (rule->type == KeyType::kSection) {
      check_object(value, path, own, remarks);
      continue;
    }
    const std::string neutral = rule->neutral;
    const bool switched_off = rule->type == KeyType::kOpaque && value.is_object() &&
                              value.value("enabled", Json()) == false;
    if (switched_off) {
      remarks.push_back({Remark::Status::kUsed, path, "off"});
    } else if (!neutral.empty() && value == parse_json(neutral, "key table")) {
      remarks.push_back({Remark::Status::kUsed, path, ""});
    } else {
      remarks.push_back({rule->support, path, rule->note});
    }
  }
}

}  // namespace

const char* remark_status_name(Remark::Status status) {
  switch (status) {
    case Remark::Status::kUsed:
      return "used";
    case Remark::Status::kIgnored:
      return "ignored";
    case Remark::Status::kNotYet:
      return "not yet";
    case Remark::Status::kWrong:
      return "wrong";
  }
  return "";
}

std::string remarks_text(const std::vector<Remark>& remarks,
                         const std::vector<Remark::Status>& statuses) {
  std::string text;
  for (const Remark& remark : remarks) {
    if (std::find(statuses.begin(), statuses.end(), remark.status) == statuses.end()) continue;
    text += format("%-8s %s", remark_status_name(remark.status), remark.key.c_str());
    if (!remark.note.empty()) text += ": " + remark.note;
    text += "\n";
  }
  return text;
}

const KeyRule* find_deepspeed_key(const std::string& path) {
  for (const KeyRule& rule : deepspeed_keys()) {
    if (path == rule.path) return &rule;
  }
  return nullptr;
}

std::vector<std::string> deepspeed_keys_of(const std::string& section) {
  std::vector<std::string> keys;
  const std::string prefix = section.empty() ? "" : section + ".";
  for (const KeyRule& rule : deepspeed_keys()) {
    const std::string path = rule.path;
    if (!path.starts_with(prefix)) continue;
    const std::string key = path.substr(prefix.size());
    if (key.find('.') == std::string::npos) keys.push_back(key);
  }
  return keys;
}

std::vector<Remark> check_key_names(const Json& config, const std::vector<std::string>& own) {
  std::vector<Remark> remarks;
  check_object(config, "", own, remarks);
  return remarks;
}

}  // namespace vitrine
