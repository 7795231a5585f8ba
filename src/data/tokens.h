// Token shards: the files of llm.c and LLMQ, mapped into memory; and a byte-level tokenizer to make
// some. The exact layouts are in docs/formats/tokens.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.h"

namespace vitrine {

// Bytes are their own ids; one more id ends a document.
constexpr int32_t kEndOfText = 256;
constexpr int32_t kByteVocabulary = 257;
// Target of a position that takes no part in the loss.
constexpr int32_t kIgnoredTarget = -1;

std::vector<int32_t> tokenize_bytes(std::string_view text);
// Drops end-of-text; throws ConfigError for ids beyond the byte vocabulary.
std::string text_of_tokens(const std::vector<int32_t>& tokens);

// Writes one shard in our own layout (BIN.TOK version 2). Throws ConfigError when `tokens` is empty
// or holds an id outside [0, vocabulary).
void write_token_shard(const std::string& path,
                       const std::vector<int32_t>& tokens,
                       int32_t vocabulary);

// One file in any of the layouts.
class TokenShard {
 public:
  // Throws IoError for unknown, truncated and overlong files, ConfigError when it holds no tokens.
  explicit TokenShard(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return size_; }
  // Stated by the file, or 0 when the layout has no place for it.
  int64_t vocabulary() const { return vocabulary_; }
  bool has_mask() const { return mask_ != nullptr; }
  // As stored; may be beyond int32 in a damaged file of 32-bit ids.
  uint32_t token(int64_t i) const {
    return token_bytes_ == 2 ? static_cast<const uint16_t*>(tokens_)[i]
                             : static_cast<const uint32_t*>(tokens_)[i];
  }
  // Whether token i is to be learned.
  bool learned(int64_t i) const { return mask_ == nullptr || (mask_[i / 8] >> (i % 8) & 1) != 0; }

 private:
  MappedFile file_;
  const void* tokens_ = nullptr;
  const uint8_t* mask_ = nullptr;
  int64_t size_ = 0, vocabulary_ = 0;
  int token_bytes_ = 4;
};

// Several shards read as one list of windows of `length` + 1 tokens. Windows follow each other by
// `length` (the last target of one is the first token of the next) and never cross shards; what is
// left at the end of a shard is not used.
class TokenShards {
 public:
  // `source`: a file, a folder (all its *.bin) or a glob pattern, taken in order of name.
  // Throws IoError when nothing matches; ConfigError when shards disagree on the vocabulary.
  static TokenShards open(const std::string& source);

  int64_t tokens() const;
  int64_t vocabulary() const { return vocabulary_; }  // 0 when no shard states it
  const std::vector<TokenShard>& shards() const { return shards_; }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::vector<TokenShard> shards_;
  int64_t vocabulary_ = 0;
};

class TokenWindows {
 public:
  // `vocabulary`: the model's, at least that of the shards (ConfigError). Throws ConfigError when
  // no shard holds a window.
  TokenWindows(std::shared_ptr<const TokenShards> shards, int64_t length, int64_t vocabulary);

  int64_t size() const { return first_window_.back(); }
  int64_t length() const { return length_; }
  // tokens i32 [length]; targets i32 [length] = the next tokens, kIgnoredTarget where a mask says
  // so. Throws ConfigError naming file, position and id when an id is beyond the vocabulary.
  void read(int64_t window, int32_t* tokens, int32_t* targets) const;

 private:
  std::shared_ptr<const TokenShards> shards_;
  int64_t length_, vocabulary_;
  std::vector<int64_t> first_window_;  // [shards + 1]
};

struct TokensOptions {
  std::vector<std::string>
      inputs;             // text files, or folders whose files are all taken, in order of name
  std::string output;     // folder for train-000.bin ... and held-out-000.bin ...
  double held_out = 0.1;  // share of each document, from its end
  int64_t shard_tokens = 100'000'000;
  bool overwrite = false;
};

struct TokensSummary {
  int64_t documents = 0, train_tokens = 0, held_out_tokens = 0, bytes = 0;
  std::vector<std::string> files;
  double seconds = 0;
};

// Tokenizes documents by bytes; each ends with kEndOfText. The output folder appears whole or not
// at all. Throws IoError, and ConfigError when there is no text.
TokensSummary write_tokens(const TokensOptions& options);

}  // namespace vitrine
