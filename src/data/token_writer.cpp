// The byte-level tokenizer and the writing of token shards.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "data/folder_writer.h"
#include "data/tokens.h"

namespace vitrine {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> documents_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> documents;
  for (const std::string& input : inputs) {
    if (!fs::exists(input)) throw IoError(input + ": no text file or folder is there");
    if (!fs::is_directory(input)) {
      documents.push_back(input);
      continue;
    }
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(input)) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
    std::sort(files.begin(), files.end());
    documents.insert(documents.end(), files.begin(), files.end());
  }
  return documents;
}

// Collects the tokens of one split and writes a shard whenever one is full.
class ShardSplitter {
 public:
  ShardSplitter(std::string folder, std::string split, int64_t shard_tokens)
      : folder_(std::move(folder)), split_(std::move(split)), shard_tokens_(shard_tokens) {}

  void add(const int32_t* tokens, int64_t count) {
    total_ += count;
    while (count > 0) {
      const int64_t room = shard_tokens_ - static_cast<int64_t>(pending_.size());
      const int64_t taken = std::min(room, count);
      pending_.insert(pending_.end(), tokens, tokens + taken);
      tokens += taken;
      count -= taken;
      if (taken == room) flush();
    }
  }
  void flush() {
    if (pending_.empty()) return;
    std::string number = std::to_string(files_.size());
    number.insert(0, number.size() < 3 ? 3 - number.size() : 0, '0');
    files_.push_back(split_ + "-" + number + ".bin");
    write_token_shard(folder_ + "/" + files_.back(), pending_, kByteVocabulary);
    pending_.clear();
  }
  int64_t total() const { return total_; }
  const std::vector<std::string>& files() const { return files_; }

 private:
  std::string folder_, split_;
  int64_t shard_tokens_, total_ = 0;
  std::vector<int32_t> pending_;
  std::vector<std::string> files_;
};

}  // namespace

std::vector<int32_t> tokenize_bytes(std::string_view text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() + 1);
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

std::string text_of_tokens(const std::vector<int32_t>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= kByteVocabulary) {
      throw ConfigError("token " + std::to_string(tokens[i]) + " at position " + std::to_string(i) +
                        " is no byte; expected 0 to 256");
    }
    if (tokens[i] != kEndOfText) text += static_cast<char>(tokens[i]);
  }
  return text;
}

void write_token_shard(const std::string& path,
                       const std::vector<int32_t>& tokens,
                       int32_t vocabulary) {
  if (tokens.empty()) throw ConfigError(path + ": no tokens to write");
  if (tokens.size() > INT32_MAX) {
    throw ConfigError(path + ": a shard holds at most 2^31 - 1 tokens; write several");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocabulary) {
      throw ConfigError(path + ": token " + std::to_string(tokens[i]) + " at position " +
                        std::to_string(i) + " is beyond the vocabulary of " +
                        std::to_string(vocabulary));
    }
  }
  int32_t header[256] = {};
  std::memcpy(header, "BIN.TOK\n", 8);
  header[2] = 2;
  header[3] = 4;
  header[4] = static_cast<int32_t>(tokens.size());
  header[5] = vocabulary;
  std::string bytes(reinterpret_cast<const char*>(header), sizeof(header));
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t));
  write_text_file(path, bytes);
}

TokensSummary write_tokens(const TokensOptions& options) {
  const int64_t begin = now_ns();
  if (!(options.held_out >= 0 && options.held_out < 1)) {
    throw ConfigError("held_out: expected a share from 0 up to but not including 1, got " +
                      std::to_string(options.held_out));
  }
  if (options.shard_tokens < 2 || options.shard_tokens > INT32_MAX) {
    throw ConfigError("shard_tokens: expected 2 to 2^31 - 1, got " +
                      std::to_string(options.shard_tokens));
  }
  const std::vector<std::string> documents = documents_of(options.inputs);
  FolderWriter folder(options.output, options.overwrite);
  ShardSplitter train(folder.path(), "train", options.shard_tokens);
  ShardSplitter held_out(folder.path(), "held-out", options.shard_tokens);
  TokensSummary summary;
  for (const std::string& document : documents) {
    std::vector<int32_t> tokens = tokenize_bytes(read_text_file(document));
    if (tokens.empty()) continue;
    tokens.push_back(kEndOfText);
    const auto size = static_cast<int64_t>(tokens.size());
    const auto kept =
        size - static_cast<int64_t>(std::floor(static_cast<double>(size) * options.held_out));
    train.add(tokens.data(), kept);
    held_out.add(tokens.data() + kept, size - kept);
    ++summary.documents;
  }
  if (summary.documents == 0) {
    throw ConfigError("no text to tokenize: " + std::to_string(documents.size()) +
                      " file(s) given, all empty");
  }
  train.flush();
  held_out.flush();
  folder.finish();
  summary.train_tokens = train.total();
  summary.held_out_tokens = held_out.total();
  for (const ShardSplitter* split : {&train, &held_out}) {
    for (const std::string& file : split->files()) {
      summary.files.push_back(options.output + "/" + file);
      summary.bytes += static_cast<int64_t>(fs::file_size(summary.files.back()));
    }
  }
  summary.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  return summary;
}

}  // namespace vitrine
