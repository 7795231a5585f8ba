// The serving side of the store: one thread, one poll loop over all connections.
#include "comm/tcp_store.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "comm/tcp_store_protocol.h"
#include "core/error.h"

namespace vitrine {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct TcpStoreServer::Connection {
  Socket socket;
  MessageBuffer incoming;
  int rank = -1;  // known after "hello"
  bool control = false;
  bool leaving = false;
  bool broken = false;
  bool ended = false;     // and this was noted
  std::string waits_for;  // key of a pending "get"
};

TcpStoreServer::TcpStoreServer(const std::string& address, int port, int ranks)
    : listener_(listen_on(address, port)),
      port_(port_of(listener_)),
      unseen_(ranks - 1),
      ranks_(static_cast<size_t>(ranks)),
      heard_(static_cast<size_t>(ranks)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw CommError(std::string("pipe: ") + strerror(errno));
  }
  wake_read_ = Socket(ends[0]);
  wake_write_ = Socket(ends[1]);
  thread_ = std::thread([this] { serve(); });
}

TcpStoreServer::~TcpStoreServer() {
  stop_ = true;
  const char byte = 0;
  [[maybe_unused]] const ssize_t n = write(wake_write_.fd(), &byte, 1);
  thread_.join();
}

void TcpStoreServer::wait_for_others(milliseconds longest, milliseconds late) {
  const auto begin = steady_clock::now();
  const auto before = [&](milliseconds end) { return steady_clock::now() - begin < end; };
  while ((others_ > 0 && before(longest)) || (unseen_ > 0 && before(late))) {
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void TcpStoreServer::serve() {
  while (!stop_) {
    std::vector<pollfd> entries = {{listener_.fd(), POLLIN, 0}, {wake_read_.fd(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      entries.push_back({connection->socket.fd(), POLLIN, 0});
    }
    if (poll(entries.data(), entries.size(), -1) < 0) continue;
    // Connections accepted now have no entry yet.
    const size_t known = connections_.size();
    if (entries[0].revents != 0) accept_one();
    for (size_t i = 0; i < known; ++i) {
      Connection& connection = *connections_[i];
      if (entries[i + 2].revents == 0 || connection.broken) continue;
      take_messages(connection);
    }
    end_broken();
    std::erase_if(connections_, [](const auto& connection) { return connection->broken; });
  }
}

void TcpStoreServer::take_messages(Connection& connection) {
  // What came before the end of a connection still counts.
  const bool open = connection.incoming.fill(connection.socket);
  try {
    while (const auto message = connection.incoming.next()) handle(connection, unpack(*message));
  } catch (const CommError&) {
    connection.broken = true;  // a stranger on the port
  }
  if (!open) connection.broken = true;
}

void TcpStoreServer::end_broken() {
  // Telling the others that a rank is gone may find further broken connections.
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = *connections_[i];
      if (!connection.broken || connection.ended) continue;
      connection.ended = again = true;
      // Found by an answer that could not be sent, before what it had said was read: its farewell,
      // say.
      if (connection.rank >= 0) take_messages(connection);
      connection_ended(connection);
    }
  }
}

void TcpStoreServer::accept_one() {
  auto connection = std::make_unique<Connection>();
  connection->socket =
      Socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection->socket) return;
  const int on = 1;
  setsockopt(connection->socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  connections_.push_back(std::move(connection));
}

void TcpStoreServer::handle(Connection& connection, const std::vector<std::string>& request) {
  const auto is = [&](const char* name, size_t fields) {
    return !request.empty() && request[0] == name && request.size() == fields;
  };
  if (is("hello", 5)) {
    const std::string error = introduce(connection, request);
    if (error.empty()) {
      reply(connection, {"ok"});
      if (connection.control) tell_late(connection);
      return;
    }
    reply(connection, {"error", error});
    connection.broken = true;
    return;
  }
  if (connection.rank < 0) throw CommError("no introduction");
  if (is("set", 3)) {
    values_[request[1]] = request[2];
    reply(connection, {"ok"});
    return answer_waiting(request[1]);
  }
  if (is("get", 2)) {
    const auto found = values_.find(request[1]);
    if (found != values_.end()) return reply(connection, {"ok", found->second});
    connection.waits_for = request[1];
    return;
  }
  if (is("add", 3)) {
    const auto found = values_.find(request[1]);
    const int64_t before = found == values_.end() ? 0 : parse_integer(found->second);
    values_[request[1]] = std::to_string(before + parse_integer(request[2]));
    reply(connection, {"ok", values_[request[1]]});
    return answer_waiting(request[1]);
  }
  if (is("table", 1)) return reply(connection, table());
  handle_report(connection, request);
}

std::string TcpStoreServer::introduce(Connection& connection,
                                      const std::vector<std::string>& request) {
  if (request[1] != kStoreGreeting) {
    return "rank 0 runs another version (" + std::string(kStoreGreeting) + ")";
  }
  const int64_t rank = parse_integer(request[2]), ranks = parse_integer(request[3]);
  if (ranks != static_cast<int64_t>(ranks_.size()) || rank < 0 || rank >= ranks) {
    return "rank 0 expects " + std::to_string(ranks_.size()) + " ranks, this one says it is rank " +
           request[2] + " of " + request[3] + "; check WORLD_SIZE and RANK";
  }
  const bool control = request[4] == "control";
  RankStatus& status = ranks_[static_cast<size_t>(rank)];
  if (control && status.state != RankStatus::State::kUnknown) {
    return "rank " + request[2] +
           " is already there; two processes have the same RANK, or a rank "
           "came back after it was gone";
  }
  connection.rank = static_cast<int>(rank);
  connection.control = control;
  if (control) {
    status.state = RankStatus::State::kAlive;
    heard_[static_cast<size_t>(rank)] = steady_clock::now();
    if (rank != 0) {
      ++others_;
      --unseen_;
    }
  }
  return "";
}

void TcpStoreServer::handle_report(Connection& connection,
                                   const std::vector<std::string>& request) {
  RankStatus& status = ranks_[static_cast<size_t>(connection.rank)];
  heard_[static_cast<size_t>(connection.rank)] = steady_clock::now();
  if (request.size() == 4 && request[0] == "progress") {
    status.step = parse_integer(request[1]);
    status.sequence = parse_integer(request[2]);
    status.what = request[3];
  } else if (request.size() == 2 && request[0] == "waited") {
    if (status.waited_order == 0) status.waited_order = ++waited_count_;
    if (status.waited_for.empty()) status.waited_for = request[1];
  } else if (request.size() == 2 && request[0] == "aborted") {
    if (status.aborted_order == 0) {
      status.aborted_order = ++aborted_count_;
      status.aborted = request[1];
    }
    tell_others(connection.rank);
  } else if (request.size() == 1 && request[0] == "leaving") {
    connection.leaving = true;
  } else {
    throw CommError("unknown request");
  }
}

void TcpStoreServer::reply(Connection& connection, const std::vector<std::string>& fields) {
  // A reader that does not read must not hold up the others.
  if (!send_message(connection.socket, pack(fields), steady_clock::now() + milliseconds(100))) {
    connection.broken = true;
  }
}

void TcpStoreServer::answer_waiting(const std::string& key) {
  for (const auto& connection : connections_) {
    if (connection->waits_for != key) continue;
    connection->waits_for.clear();
    reply(*connection, {"ok", values_[key]});
  }
}

void TcpStoreServer::connection_ended(Connection& connection) {
  if (!connection.control) return;
  RankStatus& status = ranks_[static_cast<size_t>(connection.rank)];
  if (connection.rank != 0) --others_;
  if (connection.leaving) {
    status.state = RankStatus::State::kLeft;
    return;
  }
  status.state = RankStatus::State::kGone;
  status.gone_order = ++gone_count_;
  tell_others(connection.rank);
}

// A rank that comes after another has failed must not wait for it.
void TcpStoreServer::tell_late(Connection& connection) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].aborted_order > 0 || ranks_[r].gone_order > 0) {
      reply(connection, {"lost", std::to_string(r)});
    }
  }
}

void TcpStoreServer::tell_others(int lost) {
  for (const auto& connection : connections_) {
    if (!connection->control || connection->broken || connection->rank == lost) continue;
    reply(*connection, {"lost", std::to_string(lost)});
  }
}

std::vector<std::string> TcpStoreServer::table() const {
  std::vector<std::string> fields = {"ok"};
  for (size_t r = 0; r < ranks_.size(); ++r) {
    RankStatus status = ranks_[r];
    status.silent_ms =
        std::chrono::duration_cast<milliseconds>(steady_clock::now() - heard_[r]).count();
    append_status(fields, status);
  }
  return fields;
}

}  // namespace vitrine
