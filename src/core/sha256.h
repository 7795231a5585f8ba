// SHA-256 of bytes and files, as the 64 lower-case hexadecimal digits that `sha256sum` prints.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace vitrine {

// Streaming: update() any number of times, then hex() once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* bytes, size_t count);
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view bytes);

// Of a whole file. Throws IoError when it can't be read.
std::string sha256_of_file(const std::string& path);

}  // namespace vitrine
