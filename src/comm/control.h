// Each rank's line to rank 0's store besides the collectives: who is gone, who lags, where this
// rank is.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/tcp_store.h"

namespace vitrine {

// Something with pending calls that must end when a rank is gone.
class Abortable {
 public:
  virtual ~Abortable() = default;
  // Ends pending and later calls with CommError. Safe from any thread.
  virtual void fail(const std::string& why, int missing_rank) noexcept = 0;
};

// Shared by a World and its communicators; rank 0's holds the store itself. At its end it says
// good-bye, so that this rank's leaving is not taken for a failure.
class Control {
 public:
  Control(const RankEnvironment& environment, std::chrono::milliseconds timeout);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  TcpStoreClient& store() { return *store_; }
  void progress(int64_t step, const std::string& what);
  // Remembers what to end when a rank is gone; fails it at once when that has happened.
  void watch(Abortable* target);
  // Before the target's end; waits while it is being failed.
  void unwatch(Abortable* target);
  // This rank stops the run: tells the others and fails everything here.
  void abort(const std::string& reason) noexcept;
  // Fails everything that is watched; the first reason counts.
  void fail_all(const std::string& why, int missing_rank) noexcept;
  // Tells the store that this rank gave up waiting for these, so that other ranks can find the
  // cause.
  void report_waited_for(const std::vector<int>& ranks);
  // Asks the store, for about a second at most while nothing is known. `step` and `what`: the call
  // that failed.
  World::Suspect suspect(int64_t step, const std::string& what);
  World::Suspect suspect();

 private:
  void run();
  void report(Deadline& next);
  World::Suspect judge(const std::vector<RankStatus>& table,
                       int64_t step,
                       const std::string& what,
                       bool last_word) const;

  const RankEnvironment environment_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<TcpStoreServer> server_;  // on rank 0
  std::unique_ptr<TcpStoreClient> store_;   // for rendezvous
  std::unique_ptr<TcpStoreClient> line_;    // the control connection
  std::mutex mutex_;                        // guards the rest
  int64_t step_ = -1;
  int64_t sequence_ = 0;
  std::string what_;
  std::optional<std::pair<std::string, int>> failure_;
  // Not owned: the thread below must never be the one that destroys a communicator, and with it
  // this.
  std::mutex watch_mutex_;
  std::vector<Abortable*> watched_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace vitrine
