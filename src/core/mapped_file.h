// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vitrine {

// Movable owner of one mapping. Pages come in as they are touched. A file that another process cuts
// short while it is mapped ends this one by SIGBUS, as with every mapping: replace files by rename.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws IoError when `path` is missing, unreadable, not a regular file or empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  void unmap();
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace vitrine
