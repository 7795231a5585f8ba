// Reading token shards of the known layouts and windows over them.
#include "data/tokens.h"

#include <glob.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace vitrine {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they lie");

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr char kBinTok[] = "BIN.TOK\n";
constexpr int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801;

std::vector<std::string> files_of(const std::string& source) {
  std::vector<std::string> files;
  if (fs::is_directory(source)) {
    for (const auto& entry : fs::directory_iterator(source)) {
      if (entry.path().extension() == ".bin") files.push_back(entry.path().string());
    }
    if (files.empty()) throw IoError(source + ": the folder holds no *.bin token file");
  } else if (fs::exists(source)) {
    files.push_back(source);
  } else {
    glob_t found{};
    if (glob(source.c_str(), 0, nullptr, &found) == 0) {
      files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    globfree(&found);
    if (files.empty())
      throw IoError(source + ": no token file, folder or matching pattern is there");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TokenShard::TokenShard(const std::string& path) : file_(path) {
  const auto bytes = file_.bytes();
  const auto file_size = static_cast<int64_t>(bytes.size());
  if (file_size < kHeaderBytes) {
    throw IoError(path + ": " + std::to_string(file_size) +
                  " bytes, a token file begins with a header of 1024");
  }
  int32_t header[8];
  std::memcpy(header, bytes.data(), sizeof(header));
  bool masked = false;
  const auto unknown = [&](const std::string& what) {
    throw IoError(path + ": " + what +
                  "; expected BIN.TOK version 1 or 2, or llm.c's 20240520 version 1 or 20240801 "
                  "version 7 (docs/formats/tokens.md)");
  };
  if (std::memcmp(bytes.data(), kBinTok, 8) == 0) {
    const int32_t version = header[2];
    if (version != 1 && version != 2) unknown("BIN.TOK version " + std::to_string(version));
    if (header[3] != 4) unknown("BIN.TOK with " + std::to_string(header[3]) + " bytes a token");
    size_ = header[4];
    if (version == 2) {
      vocabulary_ = header[5];
      if (vocabulary_ < 0) throw IoError(path + ": a vocabulary of " + std::to_string(vocabulary_));
      masked = header[6] != 0;
    }
  } else if (header[0] == kLlmcGpt2 || header[0] == kLlmcLlama3) {
    const int32_t version = header[0] == kLlmcGpt2 ? 1 : 7;
    if (header[1] != version) {
      unknown("magic " + std::to_string(header[0]) + " with version " + std::to_string(header[1]));
    }
    token_bytes_ = version == 1 ? 2 : 4;
    size_ = header[2];
  } else {
    unknown("not a token file (first number " + std::to_string(header[0]) + ")");
  }
  if (size_ < 0) throw IoError(path + ": the header counts " + std::to_string(size_) + " tokens");
  if (size_ == 0) throw ConfigError(path + ": the file holds no tokens; make it from some text");
  const int64_t token_end = kHeaderBytes + size_ * token_bytes_;
  const int64_t wanted = token_end + (masked ? (size_ + 7) / 8 : 0);
  if (wanted != file_size) {
    throw IoError(path + ": the header promises " + std::to_string(size_) + " tokens, " +
                  std::to_string(wanted) + " bytes in all, but the file has " +
                  std::to_string(file_size) +
                  (file_size < wanted ? "; it is truncated" : "; something follows the tokens"));
  }
  tokens_ = bytes.data() + kHeaderBytes;
  if (masked) mask_ = bytes.data() + token_end;
}

TokenShards TokenShards::open(const std::string& source) {
  TokenShards result;
  result.source_ = source;
  for (const std::string& file : files_of(source)) {
    result.shards_.emplace_back(file);
    const int64_t vocabulary = result.shards_.back().vocabulary();
    if (vocabulary == 0) continue;
    if (result.vocabulary_ != 0 && result.vocabulary_ != vocabulary) {
      throw ConfigError(file + ": a vocabulary of " + std::to_string(vocabulary) +
                        ", the shards before it have " + std::to_string(result.vocabulary_) +
                        "; train on shards of one tokenizer");
    }
    result.vocabulary_ = vocabulary;
  }
  return result;
}

int64_t TokenShards::tokens() const {
  int64_t sum = 0;
  for (const TokenShard& shard : shards_) sum += shard.size();
  return sum;
}

TokenWindows::TokenWindows(std::shared_ptr<const TokenShards> shards,
                           int64_t length,
                           int64_t vocabulary)
    : shards_(std::move(shards)), length_(length), vocabulary_(vocabulary), first_window_{0} {
  if (length < 1) throw ConfigError("a window of " + std::to_string(length) + " tokens");
  if (vocabulary < shards_->vocabulary() || vocabulary < 1) {
    throw ConfigError(shards_->source() + ": tokens of a vocabulary of " +
                      std::to_string(shards_->vocabulary()) + ", the model has only " +
                      std::to_string(vocabulary) + "; set the model's vocabulary size");
  }
  int64_t longest = 0;
  for (const TokenShard& shard : shards_->shards()) {
    longest = std::max(longest, shard.size());
    first_window_.push_back(first_window_.back() + (shard.size() - 1) / length);
  }
  if (size() == 0) {
    throw ConfigError(shards_->source() + ": no shard holds " + std::to_string(length + 1) +
                      " tokens (the largest has " + std::to_string(longest) +
                      "); shorten the sequence or add text");
  }
}

void TokenWindows::read(int64_t window, int32_t* tokens, int32_t* targets) const {
  VITRINE_ASSERT(window >= 0 && window < size());
  const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), window);
  const auto index = static_cast<size_t>(after - first_window_.begin()) - 1;
  const TokenShard& shard = shards_->shards()[index];
  const int64_t begin = (window - first_window_[index]) * length_;
  const auto checked = [&](int64_t position) {
    const uint32_t id = shard.token(position);
    if (id >= static_cast<uint64_t>(vocabulary_)) {
      throw ConfigError(shard.path() + ": token " + std::to_string(id) + " at position " +
                        std::to_string(position) + " is beyond the vocabulary of " +
                        std::to_string(vocabulary_) +
                        "; the file is of another tokenizer, or damaged");
    }
    return static_cast<int32_t>(id);
  };
  tokens[0] = checked(begin);
  for (int64_t i = 1; i <= length_; ++i) {
    const int32_t next = checked(begin + i);
    if (i < length_) tokens[i] = next;
    targets[i - 1] = shard.learned(begin + i) ? next : kIgnoredTarget;
  }
}

}  // namespace vitrine
