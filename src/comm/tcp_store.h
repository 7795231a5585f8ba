// The small key-value store that rank 0 serves: how processes find each other, and where it is
// noted which ranks are gone and how far each has come.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp_socket.h"

namespace vitrine {

// What the store knows of one rank.
struct RankStatus {
  enum class State {
    kUnknown,
    kAlive,
    kLeft,
    kGone
  };  // left: said good-bye; gone: connection broke
  State state = State::kUnknown;
  int64_t gone_order = 0;    // 1 for the first rank that was gone
  int64_t silent_ms = 0;     // since its last report
  int64_t step = -1;         // of its last progress()
  int64_t sequence = 0;      // number of progress() calls
  std::string what;          // of its last progress()
  std::string waited_for;    // ranks that it gave up waiting for, "2 5"; "" for none
  int64_t waited_order = 0;  // 1 for the first rank that gave up
  std::string aborted;       // why it stopped the run; "" when it did not
  int64_t aborted_order = 0;
};

// Runs in rank 0's process, on one thread, until its end.
class TcpStoreServer {
 public:
  // Throws CommError when the port is taken.
  TcpStoreServer(const std::string& address, int port, int ranks);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  int port() const { return port_; }
  // Waits until every other rank has closed its connections, at most `longest`, and until each has
  // been here at all, at most `late`.
  void wait_for_others(std::chrono::milliseconds longest, std::chrono::milliseconds late);

 private:
  struct Connection;
  void serve();
  void accept_one();
  void take_messages(Connection& connection);
  void end_broken();
  void handle(Connection& connection, const std::vector<std::string>& request);
  void handle_report(Connection& connection, const std::vector<std::string>& request);
  std::string introduce(Connection& connection, const std::vector<std::string>& request);
  void reply(Connection& connection, const std::vector<std::string>& fields);
  void answer_waiting(const std::string& key);
  void connection_ended(Connection& connection);
  void tell_others(int lost);
  void tell_late(Connection& connection);
  std::vector<std::string> table() const;

  Socket listener_;
  Socket wake_read_, wake_write_;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> others_{0};  // control connections of ranks other than 0
  std::atomic<int> unseen_;     // ranks other than 0 that have not come yet
  // The rest belongs to the serving thread.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::string, std::string> values_;
  std::vector<RankStatus> ranks_;
  std::vector<std::chrono::steady_clock::time_point> heard_;
  int64_t gone_count_ = 0, waited_count_ = 0, aborted_count_ = 0;
  std::thread thread_;
};

// One connection to the store; calls from several threads wait for each other. Every call throws
// CommError when the store cannot be reached or does not answer in time.
class TcpStoreClient {
 public:
  // `control`: this connection stands for the rank; when it breaks, the rank is gone.
  TcpStoreClient(const std::string& address,
                 int port,
                 int rank,
                 int ranks,
                 bool control,
                 std::chrono::milliseconds timeout);

  void set(const std::string& key, const std::string& value);
  // Waits until some rank has set the key.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  // Adds to an integer (0 at first) and returns the sum.
  int64_t add(const std::string& key, int64_t delta);
  std::vector<RankStatus> table();

  // Reports on a control connection: no answer comes.
  void report_progress(int64_t step, int64_t sequence, const std::string& what);
  void report_waited_for(const std::vector<int>& ranks);
  // Others in the middle of a call with this rank must not wait for it.
  void report_aborted(const std::string& why);
  void report_leaving();
  // Reads pending notices on a control connection: ranks that are gone or aborted. Returns at the
  // deadline, or earlier with notices. Throws CommError when rank 0 is gone.
  std::vector<int> wait_for_notices(Deadline deadline);
  // Ends a wait_for_notices() in another thread, and all later ones.
  void stop_notices();

  // Makes a get() that waits in another thread throw CommError.
  void cancel() { cancelled_ = true; }

 private:
  std::vector<std::string> request(const std::vector<std::string>& fields,
                                   std::chrono::milliseconds timeout);
  void post(const std::vector<std::string>& fields);

  std::mutex mutex_;
  std::string where_;  // "rank 0's store at 10.0.0.1:29500"
  std::chrono::milliseconds timeout_;
  std::atomic<bool> cancelled_{false};
  Socket socket_;
  MessageBuffer incoming_;
};

}  // namespace vitrine
