// What the ranks of one process share: groups, their mailboxes, and who is still there.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vitrine::local {

// What one rank brings to a collective.
struct Offer {
  const char* collective = "";
  std::string text;  // describe(), for errors
  int root = -1;     // of a broadcast
  const std::byte* in = nullptr;
  std::vector<int64_t> in_bytes;   // to each rank; one entry where all are equal
  std::vector<int64_t> out_bytes;  // all_to_all_v: expected of each rank
};

struct Transfer {
  std::span<const std::byte> data;
  std::string text;
  bool taken = false;
};

// What the ranks of one group share. Everything is guarded by `mutex`.
struct Group {
  std::vector<int> ranks;  // global
  std::string name;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;
  int missing_rank = -1;
  std::vector<bool> gone;
  // The collective under way: who has come, and who has finished with its peers' buffers.
  uint64_t generation = 0;
  std::vector<Offer> offers;
  std::vector<bool> come;
  int come_count = 0;
  int done_count = 0;
  int copying = 0;  // ranks that read their peers' buffers just now
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Transfer>>> mailbox;  // by (from, to)
  std::vector<std::string> inside;  // the call each rank is in; empty outside

  Group(std::vector<int> members, std::string group_name)
      : ranks(std::move(members)),
        name(std::move(group_name)),
        gone(ranks.size()),
        offers(ranks.size()),
        come(ranks.size()),
        inside(ranks.size()) {}

  void fail(const std::string& why, int rank) {
    if (!failure) {
      failure = why;
      missing_rank = rank;
    }
    changed.notify_all();
  }
};

// What all ranks of the process share.
struct Hub {
  struct Place {
    int64_t step = -1;
    std::string what;
  };
  explicit Hub(int ranks, std::chrono::milliseconds limit)
      : timeout(limit), places(static_cast<size_t>(ranks)) {}

  const std::chrono::milliseconds timeout;
  std::mutex mutex;  // guards what follows; never taken while a Group's mutex is held
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<Group>> groups;
  std::vector<Place> places;
  int first_gone = -1;
  std::optional<std::string> aborted;
};

// Lives as long as a rank's World or any of its communicators; its end is the rank's end.
struct Presence {
  std::shared_ptr<Hub> hub;
  int rank;

  Presence(std::shared_ptr<Hub> of, int who) : hub(std::move(of)), rank(who) {}
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() {
    std::vector<std::shared_ptr<Group>> groups;
    {
      const std::lock_guard lock(hub->mutex);
      // After an abort ranks leave in any order, and none of them is the cause.
      if (hub->aborted) return;
      if (hub->first_gone < 0) hub->first_gone = rank;
      for (const auto& entry : hub->groups) groups.push_back(entry.second);
    }
    for (const auto& group : groups) {
      const auto at = std::find(group->ranks.begin(), group->ranks.end(), rank);
      if (at == group->ranks.end()) continue;
      const std::lock_guard lock(group->mutex);
      group->gone[static_cast<size_t>(at - group->ranks.begin())] = true;
      group->changed.notify_all();
    }
  }
};

}  // namespace vitrine::local
