// Files that are on the disk before the call returns, with their SHA-256 taken on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/mapped_file.h"
#include "core/sha256.h"

namespace vitrine {

// Throws IoError with path, bytes and the system's reason; the unfinished file is then removed.
class DurableFile {
 public:
  explicit DurableFile(const std::string& path);  // created or cut to nothing
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> bytes);
  // fsync and close; returns the SHA-256 in hexadecimal.
  std::string finish();
  uint64_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(const char* doing, int error);

  std::string path_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  Sha256 hash_;
};

// Makes renames and new names inside `folder` durable.
void sync_folder(const std::string& folder);
// DurableFile under a temporary name, renamed to `path`, folder synchronised.
void replace_durably(const std::string& path, const std::string& text);

}  // namespace vitrine
