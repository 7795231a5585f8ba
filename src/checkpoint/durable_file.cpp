// write, fsync, rename, fsync of the folder; and mmap.
#include "checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {

DurableFile::DurableFile(const std::string& path) : path_(path) {
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw IoError("cannot create " + path + ": " + std::strerror(errno));
}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  close(fd_);
  std::error_code ignored;  // a device or a pipe is not ours to remove
  if (std::filesystem::is_regular_file(path_, ignored)) unlink(path_.c_str());
}

void DurableFile::fail(const char* doing, int error) {
  std::string text = std::string("cannot ") + doing + " " + path_ + " after " +
                     format_bytes(static_cast<double>(bytes_)) + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) {
    text +=
        "; free space on that disk, or save to another folder: the last good checkpoint is "
        "untouched";
  }
  throw IoError(text);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  // Blocks small enough that hashing finds them in the cache.
  constexpr size_t kBlock = 4 << 20;
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kBlock));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("write", n < 0 ? errno : ENOSPC);
    const auto done = static_cast<size_t>(n);
    hash_.update(bytes.data(), done);
    bytes_ += done;
    bytes = bytes.subspan(done);
  }
}

std::string DurableFile::finish() {
  if (fsync(fd_) != 0) fail("sync", errno);
  const int closed = close(fd_);
  fd_ = -1;
  if (closed != 0) fail("close", errno);
  return hash_.hex();
}

void sync_folder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw IoError("cannot open folder " + folder + ": " + std::strerror(errno));
  const int synced = fsync(fd);
  const int error = errno;
  close(fd);
  // Some network file systems cannot sync folders; they promise order by themselves.
  if (synced != 0 && error != EINVAL) {
    throw IoError("cannot sync folder " + folder + ": " + std::strerror(error));
  }
}

void replace_durably(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  DurableFile file(temporary);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    throw IoError("cannot rename " + temporary + " to " + path + ": " + std::strerror(error));
  }
  const std::string folder = std::filesystem::path(path).parent_path();
  sync_folder(folder.empty() ? "." : folder);
}

}  // namespace vitrine
