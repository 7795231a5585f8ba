// The thread that looks after one rank's NCCL communicators: what failed, what is late.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace vitrine {

// What the watch asks of a communicator; called from its thread.
class Watched {
 public:
  virtual ~Watched() = default;
  // The sentence of a call that failed or is late ("all_gather (...): waited 60 s"), "" when all is
  // well.
  virtual std::string look() = 0;
  // Ends what is on the device. False: a call is being issued just now, try again.
  virtual bool end() noexcept = 0;
};

// Shared by a world and its communicators. The first failure counts and stays.
class NcclWatch {
 public:
  explicit NcclWatch(int device);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // The world of host messages, whose failures are this one's too; called once, before add().
  void set_host(std::unique_ptr<World> host) { host_ = std::move(host); }
  World& host() { return *host_; }

  void add(Watched* target);
  void remove(Watched* target);  // waits while it is being looked at

  // From any thread; the communicators are ended soon after, by the thread.
  void fail(const std::string& why, int missing_rank) noexcept;
  // As fail, with the host's judgement on whom to blame.
  void fail_with_suspect(const std::string& what_failed);
  bool failed() const { return failed_; }
  // Throws the failure, beginning with `call` where one is given.
  void check(const std::string& call = "") const;

 private:
  struct Failure {
    std::string why;
    int missing_rank = -1;
  };
  void run();

  const int device_;
  mutable std::mutex mutex_;  // guards failure_ and stop_
  std::condition_variable changed_;
  std::optional<Failure> failure_;
  std::atomic<bool> failed_{false};
  bool stop_ = false;
  std::mutex targets_mutex_;  // never taken while mutex_ is held
  std::vector<Watched*> targets_;
  std::unique_ptr<World> host_;  // ends before what its listener, fail(), touches
  std::thread thread_;
};

}  // namespace vitrine
