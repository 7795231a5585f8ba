// Reading of files in pieces.
#include "readers/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/format.h"
#include "readers/gzip_text.h"

namespace vitrine {
namespace {

class FileSource : public TextSource {
 public:
  explicit FileSource(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      throw IoError("cannot read " + path + ": " + std::strerror(errno));
    }
    struct stat status {};
    if (fstat(descriptor_, &status) == 0) {
      if (S_ISDIR(status.st_mode)) {
        close(descriptor_);
        throw IoError(path + " is a folder, not a file");
      }
      left_ = static_cast<uint64_t>(std::max<off_t>(0, status.st_size));
    }
  }
  ~FileSource() override { close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  size_t read(char* into, size_t size) override {
    size_t filled = begin_size_;
    if (filled > 0) {
      filled = std::min(filled, size);
      std::memcpy(into, begin_ + (kBegin - begin_size_), filled);
      begin_size_ -= filled;
    }
    while (filled < size && problem_.empty()) {
      const ssize_t got = ::read(descriptor_, into + filled, size - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) problem_ = std::string("it cannot be read on: ") + std::strerror(errno);
      if (got <= 0) break;
      filled += static_cast<size_t>(got);
    }
    left_ -= std::min<uint64_t>(left_, filled);
    return filled;
  }
  std::string problem() const override { return problem_; }
  uint64_t size_hint() const override { return left_; }

  // The first bytes, which read() gives all the same.
  std::string_view peek() {
    char bytes[kBegin];
    const size_t got = read(bytes, kBegin);
    begin_size_ = got;
    std::memcpy(begin_ + (kBegin - got), bytes, got);
    left_ += got;
    return {begin_ + (kBegin - got), got};
  }

 private:
  static constexpr size_t kBegin = 2;
  int descriptor_;
  char begin_[kBegin] = {};
  size_t begin_size_ = 0;
  uint64_t left_ = 0;
  std::string problem_;
};

class MemorySource : public TextSource {
 public:
  explicit MemorySource(std::string_view text) : text_(text) {}
  size_t read(char* into, size_t size) override {
    size = std::min(size, text_.size());
    if (size > 0) std::memcpy(into, text_.data(), size);
    text_.remove_prefix(size);
    return size;
  }
  uint64_t size_hint() const override { return text_.size(); }

 private:
  std::string_view text_;
};

}  // namespace

std::unique_ptr<TextSource> open_text_source(const std::string& path) {
  auto file = std::make_unique<FileSource>(path);
  const std::string_view begin = file->peek();
  if (begin.empty()) {
    const std::string problem = file->problem();
    throw IoError(problem.empty() ? path + " is empty" : "cannot read " + path + ": " + problem);
  }
  if (begin == "\x1f\x8b") return gzip_text_source(std::move(file));
  return file;
}

std::unique_ptr<TextSource> memory_text_source(std::string_view text) {
  return std::make_unique<MemorySource>(text);
}

}  // namespace vitrine
