// SHA-256 through OpenSSL's digest interface.
#include "core/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace vitrine {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

namespace {
void require(bool ok) {
  if (!ok)
    throw Error("SHA-256: OpenSSL's digest failed; is libcrypto's default provider present?");
}
}  // namespace

Sha256::Sha256() : state_(std::make_unique<State>()) {
  require(state_->context != nullptr &&
          EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* bytes, size_t count) {
  require(EVP_DigestUpdate(state_->context, bytes, count) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_of_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("cannot open " + path + ": " + std::strerror(errno));
  Sha256 hash;
  std::vector<char> block(size_t{1} << 20);
  ssize_t n = 0;
  int error = 0;
  while ((n = read(fd, block.data(), block.size())) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      error = errno;
      break;
    }
    hash.update(block.data(), static_cast<size_t>(n));
  }
  close(fd);
  if (error != 0) throw IoError("cannot read " + path + ": " + std::strerror(error));
  return hash.hex();
}

}  // namespace vitrine
