// Protobuf and TFRecord encoding by hand: five fields do not justify a protobuf dependency.
#include "metrics/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/clock.h"
#include "core/error.h"

namespace vitrine {

namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

template <typename T>
void append_fixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>((value & 0x7f) | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

// Protobuf wire types.
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
void append_key(std::string& out, uint64_t field, Wire wire) {
  append_varint(out, field << 3 | wire);
}
void append_bytes(std::string& out, uint64_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary =
// 5;
//                 SessionLog session_log = 7; }
std::string event_head(double wall_time_s, int64_t step) {
  std::string out;
  append_key(out, 1, kFixed64);
  append_fixed(out, wall_time_s);
  append_key(out, 2, kVarint);
  append_varint(out, static_cast<uint64_t>(step));
  return out;
}

double wall_seconds() {
  const ClockAnchor& anchor = clock_anchor();
  return static_cast<double>(anchor.wall_ns + (now_ns() - anchor.monotonic_ns)) / 1e9;
}

std::string new_path(const std::string& folder) {
  static std::atomic<int> count{0};
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  return folder + "/events.out.tfevents." + std::to_string(static_cast<int64_t>(wall_seconds())) +
         "." + host + "." + std::to_string(getpid()) + "." + std::to_string(count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

EventFile::EventFile(const std::string& folder, int64_t first_step) : path_(new_path(folder)) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw IoError("cannot create " + path_ + ": " + std::strerror(errno));
  std::string version = event_head(wall_seconds(), 0);
  append_bytes(version, 3, "brain.Event:2");
  record(version);
  if (first_step > 0) {
    std::string start = event_head(wall_seconds(), first_step);
    append_bytes(start, 7, std::string_view("\x08\x01", 2));  // SessionLog { status = START }
    record(start);
  }
}

EventFile::~EventFile() {
  if (fd_ >= 0) close(fd_);
}

void EventFile::scalars(double wall_time_s,
                        int64_t step,
                        const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;  // message Value { string tag = 1; float simple_value = 2; }
    append_bytes(value, 1, tag);
    append_key(value, 2, kFixed32);
    append_fixed(value, static_cast<float>(number));
    append_bytes(summary, 1, value);
  }
  std::string event = event_head(wall_time_s, step);
  append_bytes(event, 5, summary);
  record(event);
}

void EventFile::record(const std::string& event) {
  std::string framed;
  append_fixed(framed, uint64_t{event.size()});
  append_fixed(framed, masked_crc32c(std::string_view(framed.data(), 8)));
  framed += event;
  append_fixed(framed, masked_crc32c(event));
  const ssize_t n = write(fd_, framed.data(), framed.size());
  if (n != static_cast<ssize_t>(framed.size())) {
    throw IoError("cannot write " + path_ + ": " + (n < 0 ? std::strerror(errno) : "disk full"));
  }
}

}  // namespace vitrine
