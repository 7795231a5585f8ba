// Readers of Hugging Face's config.json, one function a family of configuration keys.
#pragma once

#include <string>

#include "core/error.h"
#include "core/json.h"
#include "plan/model_shape.h"

namespace vitrine::hf {

constexpr int64_t kMostOfAnything = int64_t{1} << 40;

// One configuration with Python's None left out.
class HfConfig {
 public:
  HfConfig(const Json& config, const std::string& source);

  // Sizes that have to be there.
  int64_t need(const char* key) {
    if (!in_.has(key)) refuse(std::string("the key \"") + key + "\" is missing");
    return in_.integer(key, 0, 1, kMostOfAnything);
  }
  // Whichever of two names there is.
  int64_t need(const char* key, const char* other) {
    return !in_.has(key) && in_.has(other) ? need(other) : need(key);
  }
  int64_t count(const char* key, int64_t fallback) {
    return in_.integer(key, fallback, 0, kMostOfAnything);
  }
  bool flag(const char* key, bool fallback) { return in_.boolean(key, fallback); }
  double number(const char* key, double fallback) { return in_.number(key, fallback); }
  bool has(const char* key) const { return in_.has(key); }
  std::string text(const char* key) { return in_.text(key, ""); }
  const Json& raw(const char* key) { return in_.raw(key); }
  const std::string& source() const { return source_; }
  [[noreturn]] void refuse(const std::string& message) const {
    throw ConfigError(source_ + ": " + message);
  }

 private:
  Json present_;
  JsonReader in_;
  std::string source_;
};

// Each fills the shape, or refuses the configuration (ConfigError) with its place.
// Llama and what keeps its keys (hf_llama_family.cpp):
void read_llama(HfConfig& in, ModelShape& m);
void read_mistral(HfConfig& in, ModelShape& m);
void read_mixtral(HfConfig& in, ModelShape& m);
void read_qwen2(HfConfig& in, ModelShape& m);
void read_qwen2_moe(HfConfig& in, ModelShape& m);
void read_qwen3(HfConfig& in, ModelShape& m);
void read_qwen3_moe(HfConfig& in, ModelShape& m);
void read_deepseek_v3(HfConfig& in, ModelShape& m);
void read_gpt_oss(HfConfig& in, ModelShape& m);
// GPT-2 and its like (hf_gpt_family.cpp):
void read_gpt2(HfConfig& in, ModelShape& m);
void read_neox(HfConfig& in, ModelShape& m);
void read_bloom(HfConfig& in, ModelShape& m);
void read_opt(HfConfig& in, ModelShape& m);

// The layer of GPT-2 and its like: LayerNorm, biases, two matrices.
void set_gpt(ModelShape& m, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn);

}  // namespace vitrine::hf
