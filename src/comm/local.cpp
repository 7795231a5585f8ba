// Ranks as threads of one process: their worlds.
#include "comm/call_checks.h"
#include "comm/communicator.h"
#include "comm/lag.h"
#include "comm/local_communicator.h"
#include "core/error.h"

namespace vitrine {
namespace {

using local::Group;
using local::Hub;
using local::LocalCommunicator;
using local::Presence;

class LocalWorld : public World {
 public:
  LocalWorld(std::shared_ptr<Hub> hub, int rank)
      : hub_(hub), presence_(std::make_shared<Presence>(hub, rank)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->places.size()); }

  std::shared_ptr<Communicator> group(const std::vector<int>& ranks,
                                      const std::string& name) override {
    const int group_rank = check_group(name, ranks, rank_, size());
    const std::lock_guard lock(hub_->mutex);
    if (hub_->aborted) throw CommError("group '" + name + "': " + *hub_->aborted);
    std::shared_ptr<Group>& group = hub_->groups[{name, ranks}];
    if (!group) group = std::make_shared<Group>(ranks, name);
    return std::make_shared<LocalCommunicator>(group, presence_, group_rank);
  }

  void abort(const std::string& reason) noexcept override {
    std::vector<std::shared_ptr<Group>> groups;
    const std::string why = "aborted by rank " + std::to_string(rank_) + ": " + reason;
    {
      const std::lock_guard lock(hub_->mutex);
      if (!hub_->aborted) hub_->aborted = why;
      for (const auto& entry : hub_->groups) groups.push_back(entry.second);
    }
    for (const auto& group : groups) {
      const std::lock_guard lock(group->mutex);
      group->fail(why, -1);
    }
  }

  Suspect suspect() override {
    std::vector<Hub::Place> places;
    int first_gone = -1;
    std::vector<std::shared_ptr<Group>> groups;
    {
      const std::lock_guard lock(hub_->mutex);
      places = hub_->places;
      first_gone = hub_->first_gone;
      for (const auto& entry : hub_->groups) groups.push_back(entry.second);
    }
    if (first_gone >= 0) return {first_gone, "rank " + std::to_string(first_gone) + " is gone"};
    for (const auto& group : groups) {
      const std::lock_guard lock(group->mutex);
      if (group->missing_rank >= 0) return {group->missing_rank, lag(group->missing_rank, places)};
    }
    return {};
  }

  // What the late rank has not entered, and where it was last.
  std::string lag(int late, const std::vector<Hub::Place>& places) const {
    const Hub::Place& own = places[static_cast<size_t>(rank_)];
    const Hub::Place& there = places[static_cast<size_t>(late)];
    return lag_sentence(late, own.step, own.what, there.step, there.what);
  }

  void progress(int64_t step, const std::string& what) override {
    const std::lock_guard lock(hub_->mutex);
    Hub::Place& place = hub_->places[static_cast<size_t>(rank_)];
    place.step = step;
    place.what = what;
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Presence> presence_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<World>> make_local_worlds(int ranks,
                                                      std::chrono::milliseconds timeout) {
  if (ranks < 1) throw ConfigError("expected at least one rank, got " + std::to_string(ranks));
  auto hub = std::make_shared<Hub>(ranks, timeout);
  std::vector<std::unique_ptr<World>> worlds;
  for (int r = 0; r < ranks; ++r) worlds.push_back(std::make_unique<LocalWorld>(hub, r));
  return worlds;
}

}  // namespace vitrine
