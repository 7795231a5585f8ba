// The asking side of the store.
#include <sys/socket.h>

#include "comm/tcp_store_protocol.h"
#include "core/format.h"

namespace vitrine {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TcpStoreClient::TcpStoreClient(
    const std::string& address, int port, int rank, int ranks, bool control, milliseconds timeout)
    : where_("rank 0's store at " + address + ":" + std::to_string(port)), timeout_(timeout) {
  try {
    socket_ = connect_to(address, port, steady_clock::now() + timeout);
  } catch (const CommError& error) {
    throw CommError("rank " + std::to_string(rank) + " could not reach " + where_ + " within " +
                        format_ns(static_cast<double>(timeout.count()) * 1e6) + " (" +
                        error.what() +
                        "); check that rank 0 runs, that MASTER_ADDR and MASTER_PORT are the same "
                        "on every rank, and that no firewall is between them",
                    0);
  }
  request({"hello",
           kStoreGreeting,
           std::to_string(rank),
           std::to_string(ranks),
           control ? "control" : "plain"},
          timeout);
}

void TcpStoreClient::set(const std::string& key, const std::string& value) {
  request({"set", key, value}, timeout_);
}

std::string TcpStoreClient::get(const std::string& key, milliseconds timeout) {
  return request({"get", key}, timeout).at(1);
}

int64_t TcpStoreClient::add(const std::string& key, int64_t delta) {
  return parse_integer(request({"add", key, std::to_string(delta)}, timeout_).at(1));
}

std::vector<RankStatus> TcpStoreClient::table() {
  const std::vector<std::string> fields = request({"table"}, timeout_);
  std::vector<RankStatus> ranks;
  for (size_t at = 1; at < fields.size(); at += kStatusFields) {
    ranks.push_back(status_at(fields, at));
  }
  return ranks;
}

std::vector<std::string> TcpStoreClient::request(const std::vector<std::string>& fields,
                                                 milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  const Deadline deadline = steady_clock::now() + timeout;
  const std::string asked = fields[0] + (fields.size() > 1 ? " '" + fields[1] + "'" : "");
  if (!socket_ || !send_message(socket_, pack(fields), deadline)) {
    throw CommError("lost " + where_ + ": rank 0 is gone", 0);
  }
  while (!cancelled_) {
    // In slices, so that cancel() is seen.
    const Deadline slice = std::min(deadline, steady_clock::now() + milliseconds(50));
    const bool open = !wait_readable(socket_, slice) || incoming_.fill(socket_);
    if (const auto message = incoming_.next()) {
      std::vector<std::string> answer = unpack(*message);
      if (!answer.empty() && answer[0] == "ok") return answer;
      throw CommError(where_ + " refused: " + (answer.size() > 1 ? answer[1] : "unknown answer"));
    }
    if (!open) {
      socket_.close();
      throw CommError("lost " + where_ + ": rank 0 is gone", 0);
    }
    if (steady_clock::now() >= deadline) {
      // A late answer would be taken for that of the next request.
      socket_.close();
      throw CommError(where_ + " did not answer " + asked + " within " +
                      format_ns(static_cast<double>(timeout.count()) * 1e6));
    }
  }
  socket_.close();
  throw CommError(where_ + ": " + asked + " was given up, since the run is being stopped");
}

void TcpStoreClient::post(const std::vector<std::string>& fields) {
  const std::lock_guard lock(mutex_);
  if (!send_message(socket_, pack(fields), steady_clock::now() + milliseconds(500))) {
    throw CommError("lost " + where_ + ": rank 0 is gone", 0);
  }
}

void TcpStoreClient::report_progress(int64_t step, int64_t sequence, const std::string& what) {
  post({"progress", std::to_string(step), std::to_string(sequence), what});
}

void TcpStoreClient::report_waited_for(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (const int r : ranks) names.push_back(std::to_string(r));
  post({"waited", join(names, " ")});
}

void TcpStoreClient::report_aborted(const std::string& why) { post({"aborted", why}); }

void TcpStoreClient::report_leaving() { post({"leaving"}); }

void TcpStoreClient::stop_notices() { shutdown(socket_.fd(), SHUT_RD); }

std::vector<int> TcpStoreClient::wait_for_notices(Deadline deadline) {
  std::vector<int> lost;
  const auto take = [&] {
    while (const auto message = incoming_.next()) {
      const std::vector<std::string> fields = unpack(*message);
      if (fields.size() == 2 && fields[0] == "lost") {
        lost.push_back(static_cast<int>(parse_integer(fields[1])));
      }
    }
  };
  take();  // what came together with the answer to the introduction
  if (!lost.empty()) return lost;
  const bool open = !wait_readable(socket_, deadline) || incoming_.fill(socket_);
  take();
  if (!open && lost.empty()) throw CommError("lost " + where_ + ": rank 0 is gone", 0);
  return lost;
}

}  // namespace vitrine
