// The bytes of one run as a file in /dev/shm, for readers that want a path. Not a memfd: SQLite
// follows links, and that one leads nowhere.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace vitrine {

class FuzzFile {
 public:
  FuzzFile(const uint8_t* data, size_t size) : handle_(mkstemp(path_.data())) {
    for (size_t done = 0; done < size;) {
      const ssize_t wrote = write(handle_, data + done, size - done);
      if (wrote <= 0) break;
      done += static_cast<size_t>(wrote);
    }
  }
  ~FuzzFile() {
    close(handle_);
    unlink(path_.c_str());
  }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/dev/shm/vitrine_fuzz_XXXXXX";
  int handle_;
};

}  // namespace vitrine
