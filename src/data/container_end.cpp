// The last Ogg page (RFC 3533) and the stated length of a Matroska segment (RFC 8794, RFC 9559).
#include "data/container_end.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>

namespace vitrine {
namespace {

std::string read_range(const std::string& path, std::streamoff from, size_t count) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(from);
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return bytes;
}

std::streamoff size_of(const std::string& path) {
  return std::ifstream(path, std::ios::binary | std::ios::ate).tellg();
}

// An EBML size at `at`, which it moves past; nothing when it is unknown or outside `bytes`. The
// number of leading zero bits tells the length, and the rest is big-endian.
std::optional<uint64_t> ebml_size(const std::string& bytes, size_t& at) {
  if (at >= bytes.size() || bytes[at] == 0) return {};
  const auto first = static_cast<uint8_t>(bytes[at]);
  const auto length = static_cast<size_t>(__builtin_clz(first) - 23);
  if (at + length > bytes.size()) return {};
  uint64_t value = first & ((1u << (8 - length)) - 1);
  for (size_t i = 1; i < length; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  at += length;
  const uint64_t unknown = (uint64_t{1} << (7 * length)) - 1;
  if (value == unknown) return {};
  return value;
}

}  // namespace

std::string missing_end_of_ogg(const std::string& path) {
  constexpr std::streamoff kLongestPage = 65307;
  const std::streamoff size = size_of(path);
  const std::string tail = read_range(
      path, std::max<std::streamoff>(0, size - kLongestPage), static_cast<size_t>(kLongestPage));
  const size_t page = tail.rfind("OggS");
  // Byte 5 holds the flags (4 = last page of its stream), byte 26 the number of segments, whose
  // lengths follow.
  if (page == std::string::npos || page + 27 > tail.size() || (tail[page + 5] & 4) == 0) {
    return "its last page is missing";
  }
  const size_t segments = static_cast<uint8_t>(tail[page + 26]);
  size_t end = page + 27 + segments;
  for (size_t i = 0; i < segments && page + 27 + i < tail.size(); ++i) {
    end += static_cast<uint8_t>(tail[page + 27 + i]);
  }
  return end > tail.size() ? "its last page is not whole" : "";
}

std::string missing_end_of_matroska(const std::string& path) {
  const std::string head = read_range(path, 0, 4096);
  size_t at = 4;  // past the identifier of the EBML header
  const std::optional<uint64_t> header = ebml_size(head, at);
  if (!header || *header > head.size() - at) return "";
  at += static_cast<size_t>(*header);
  if (head.compare(at, 4, "\x18\x53\x80\x67") != 0) return "";
  at += 4;
  const std::optional<uint64_t> segment = ebml_size(head, at);
  if (!segment) return "";
  const uint64_t wanted = at + *segment, size = static_cast<uint64_t>(size_of(path));
  if (wanted <= size) return "";
  return "it holds " + std::to_string(size) + " of " + std::to_string(wanted) + " bytes";
}

}  // namespace vitrine
