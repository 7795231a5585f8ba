// TCP sockets with deadlines and framed messages, as the store and its clients use them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vitrine {

using Deadline = std::chrono::steady_clock::time_point;

// An owned file descriptor; closed at the end.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void close();

 private:
  int fd_ = -1;
};

// Listens on `address` (a name or number; "" means every interface) and `port` (0: any free one).
// Throws CommError when the port is taken or the address is not of this host.
Socket listen_on(const std::string& address, int port);
// The port that a listening socket got.
int port_of(const Socket& socket);
// Tries until the deadline, since the other side may start later. Throws CommError saying why it
// failed.
Socket connect_to(const std::string& address, int port, Deadline deadline);

// The local address from which packets to `address` leave, as text ("10.0.0.7").
std::string local_address_towards(const std::string& address);
bool is_loopback(const std::string& numeric_address);
// A port that was free a moment ago.
int free_port();

// A message: 32-bit length, then that many bytes.
class MessageBuffer {
 public:
  // Takes what the socket has now. False at the end of the connection or at an error.
  bool fill(const Socket& socket);
  std::optional<std::string> next();

 private:
  std::string bytes_;
};
// Blocks until all is sent. False when the connection is broken or the deadline passes.
bool send_message(const Socket& socket, const std::string& payload, Deadline deadline);
// Waits until the socket is readable. False at the deadline.
bool wait_readable(const Socket& socket, Deadline deadline);

// Fields of a payload: strings with their lengths, and integers.
std::string pack(const std::vector<std::string>& fields);
// Throws CommError when the payload is not made by pack().
std::vector<std::string> unpack(const std::string& payload);

}  // namespace vitrine
