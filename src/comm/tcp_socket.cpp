// Sockets of the store: resolved, connected and read under deadlines.
#include "comm/tcp_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "core/error.h"

namespace vitrine {
namespace {

constexpr uint32_t kLongestMessage = 16u << 20;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& address, int port, int type, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int rv = getaddrinfo(
      address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rv != 0) {
    throw CommError("cannot resolve the address '" + address + "': " + gai_strerror(rv) +
                    "; check MASTER_ADDR");
  }
  return AddressList(found, &freeaddrinfo);
}

std::string endpoint(const std::string& address, int port) {
  return (address.empty() ? "*" : address) + ":" + std::to_string(port);
}

int remaining_ms(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int rv = poll(&entry, 1, remaining_ms(deadline));
    if (rv > 0) return true;
    if (rv == 0) return false;
    if (errno != EINTR) return false;
  }
}

// One attempt; 0, or the error.
int try_connect(const addrinfo& address, Deadline deadline, Socket& socket) {
  socket = Socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(socket.fd(), POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return 0;
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address),
                  length,
                  host,
                  sizeof(host),
                  nullptr,
                  0,
                  NI_NUMERICHOST) != 0) {
    return "";
  }
  return host;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

int Socket::release() { return std::exchange(fd_, -1); }

void Socket::close() {
  if (fd_ >= 0) ::close(release());
}

Socket listen_on(const std::string& address, int port) {
  const AddressList list = resolve(address, port, SOCK_STREAM, AI_PASSIVE);
  int error = 0;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    // A restarted run may listen while the old one's connections are still in TIME_WAIT.
    if (socket) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (socket && bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(socket.fd(), 1024) == 0) {
      return socket;
    }
    error = errno;
  }
  std::string advice;
  if (error == EADDRINUSE) {
    advice = "; another process, perhaps an earlier run, has this port: choose another MASTER_PORT";
  } else if (error == EADDRNOTAVAIL) {
    advice = "; MASTER_ADDR must be an address of the host that runs rank 0";
  }
  throw CommError("cannot listen on " + endpoint(address, port) + ": " + strerror(error) + advice);
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket connect_to(const std::string& address, int port, Deadline deadline) {
  int error = ETIMEDOUT;
  do {
    const AddressList list = resolve(address, port, SOCK_STREAM, 0);
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      Socket socket;
      error = try_connect(*at, deadline, socket);
      if (error == 0) return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (std::chrono::steady_clock::now() < deadline);
  throw CommError("cannot connect to " + endpoint(address, port) + ": " + strerror(error));
}

std::string local_address_towards(const std::string& address) {
  // Connecting a datagram socket sends nothing; it only asks the routing table.
  const AddressList list = resolve(address, 9, SOCK_DGRAM, 0);
  int error = 0;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    const Socket socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && connect(socket.fd(), at->ai_addr, at->ai_addrlen) == 0) {
      sockaddr_storage local{};
      socklen_t length = sizeof(local);
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local), &length);
      return numeric(local, length);
    }
    error = errno;
  }
  throw CommError("no route to '" + address + "': " + strerror(error) +
                  "; check MASTER_ADDR, or name an interface in VITRINE_SOCKET_IFNAME");
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

int free_port() { return port_of(listen_on("", 0)); }

bool MessageBuffer::fill(const Socket& socket) {
  char chunk[65536];
  for (;;) {
    const ssize_t n = recv(socket.fd(), chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n > 0) {
      bytes_.append(chunk, static_cast<size_t>(n));
      continue;
    }
    if (n == 0) return false;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

std::optional<std::string> MessageBuffer::next() {
  uint32_t length = 0;
  if (bytes_.size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, bytes_.data(), sizeof(length));
  if (length > kLongestMessage) throw CommError("the peer does not speak the store's protocol");
  if (bytes_.size() < sizeof(length) + length) return std::nullopt;
  std::string payload = bytes_.substr(sizeof(length), length);
  bytes_.erase(0, sizeof(length) + length);
  return payload;
}

bool send_message(const Socket& socket, const std::string& payload, Deadline deadline) {
  const uint32_t length = static_cast<uint32_t>(payload.size());
  std::string bytes(sizeof(length) + payload.size(), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), payload.data(), payload.size());
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        send(socket.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket.fd(), POLLOUT, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool wait_readable(const Socket& socket, Deadline deadline) {
  return wait_for(socket.fd(), POLLIN, deadline);
}

std::string pack(const std::vector<std::string>& fields) {
  std::string payload;
  for (const std::string& field : fields) {
    payload += std::to_string(field.size()) + ":" + field;
  }
  return payload;
}

std::vector<std::string> unpack(const std::string& payload) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (at < payload.size()) {
    size_t length = 0;
    size_t digits = at;
    while (digits < payload.size() && digits - at < 9 && payload[digits] >= '0' &&
           payload[digits] <= '9') {
      length = length * 10 + static_cast<size_t>(payload[digits++] - '0');
    }
    if (digits == at || digits >= payload.size() || payload[digits] != ':' ||
        length > payload.size() - digits - 1) {
      throw CommError("the peer does not speak the store's protocol");
    }
    fields.push_back(payload.substr(digits + 1, length));
    at = digits + 1 + length;
  }
  return fields;
}

}  // namespace vitrine
