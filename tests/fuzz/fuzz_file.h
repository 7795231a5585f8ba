// The bytes of one run as a file in memory, for readers that want a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace vitrine {

class FuzzFile {
 public:
  FuzzFile(const uint8_t* data, size_t size) : handle_(memfd_create("fuzz", 0)) {
    for (size_t done = 0; done < size;) {
      const ssize_t wrote = write(handle_, data + done, size - done);
      if (wrote <= 0) break;
      done += static_cast<size_t>(wrote);
    }
  }
  ~FuzzFile() { close(handle_); }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(handle_); }

 private:
  int handle_;
};

}  // namespace vitrine
