// Ranks as threads of one process: a collective is a rendezvous, after which each rank copies what
// it needs out of its peers' buffers.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "comm/communicator.h"
#include "comm/lag.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

using Clock = std::chrono::steady_clock;

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

std::string count_text(const std::vector<int64_t>& bytes) {
  std::vector<std::string> parts;
  for (const int64_t b : bytes) parts.push_back(std::to_string(b));
  return parts.size() == 1 ? parts[0] : "[" + join(parts, ", ") + "]";
}

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, std::shared_ptr<Presence> presence, int rank)
      : group_(std::move(group)), presence_(std::move(presence)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  const std::vector<int>& global_ranks() const override { return group_->ranks; }
  const std::string& name() const override { return group_->name; }

  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override {
    expect(out.size() == in.size() * count(), "all_gather", in.size() * count(), out.size());
    collective(offer("all_gather", in, {signed_size(in)}), [&](size_t r, const Offer& peer) {
      std::byte* to = out.data() + r * in.size();
      if (to != peer.in) copy(to, peer.in, in.size());
    });
  }

  void all_to_all(std::span<const std::byte> in, std::span<std::byte> out) override {
    expect(out.size() == in.size(), "all_to_all", in.size(), out.size());
    expect(in.size() % count() == 0, "all_to_all", in.size() / count() * count(), in.size());
    const size_t piece = in.size() / count();
    collective(offer("all_to_all", in, {signed_size(in)}), [&](size_t r, const Offer& peer) {
      copy(out.data() + r * piece, peer.in + own() * piece, piece);
    });
  }

  void all_to_all_v(std::span<const std::byte> in,
                    std::span<const int64_t> in_bytes,
                    std::span<std::byte> out,
                    std::span<const int64_t> out_bytes) override {
    expect_counts("all_to_all_v", in_bytes, in.size());
    expect_counts("all_to_all_v", out_bytes, out.size());
    Offer mine = offer("all_to_all_v", in, {in_bytes.begin(), in_bytes.end()});
    mine.out_bytes.assign(out_bytes.begin(), out_bytes.end());
    std::byte* to = out.data();
    collective(std::move(mine), [&](size_t r, const Offer& peer) {
      const std::byte* from = peer.in;
      for (size_t i = 0; i < own(); ++i) from += peer.in_bytes[i];
      copy(to, from, static_cast<size_t>(out_bytes[r]));
      to += out_bytes[r];
    });
  }

  void broadcast(std::span<std::byte> data, int root) override {
    expect_rank("broadcast", root);
    Offer mine = offer("broadcast", data, {signed_size(data)});
    mine.root = root;
    collective(std::move(mine), [&](size_t r, const Offer& peer) {
      if (static_cast<int>(r) == root && rank_ != root) copy(data.data(), peer.in, data.size());
    });
  }

  void barrier() override {
    collective(offer("barrier", {}, {0}), [](size_t, const Offer&) {});
  }

  void send(std::span<const std::byte> data, int to) override {
    expect_rank("send", to);
    const std::string text = describe("send to " + global_name(to));
    std::unique_lock lock(group_->mutex);
    enter(text);
    auto transfer = std::make_shared<Transfer>();
    transfer->data = data;
    transfer->text = text;
    group_->mailbox[{rank_, to}].push_back(transfer);
    group_->changed.notify_all();
    wait(lock, text, {to}, [&] { return transfer->taken; });
    leave();
  }

  void receive(std::span<std::byte> data, int from) override {
    expect_rank("receive", from);
    const std::string text = describe("receive from " + global_name(from));
    std::unique_lock lock(group_->mutex);
    enter(text);
    auto& waiting = group_->mailbox[{from, rank_}];
    wait(lock, text, {from}, [&] { return !waiting.empty(); });
    const std::shared_ptr<Transfer> transfer = waiting.front();
    if (transfer->data.size() != data.size()) {
      group_->fail(format("%s of %s expects %zu bytes, but %s of %s brings %zu",
                          text.c_str(),
                          global_name(rank_).c_str(),
                          data.size(),
                          transfer->text.c_str(),
                          global_name(from).c_str(),
                          transfer->data.size()),
                   -1);
      throw_failure(text);
    }
    copy(data.data(), transfer->data.data(), data.size());
    waiting.erase(waiting.begin());
    transfer->taken = true;
    group_->changed.notify_all();
    leave();
  }

  void abort() noexcept override {
    const std::lock_guard lock(group_->mutex);
    group_->fail("aborted by " + global_name(rank_), -1);
  }

 protected:
  void exchange(std::span<const std::byte> in, std::span<std::byte> out) override {
    const size_t piece = in.size() / count();
    collective(offer("reduce_scatter", in, {signed_size(in)}), [&](size_t r, const Offer& peer) {
      if (r == own()) return;
      copy(out.data() + (r < own() ? r : r - 1) * piece, peer.in + own() * piece, piece);
    });
  }

 private:
  size_t count() const { return group_->ranks.size(); }
  size_t own() const { return static_cast<size_t>(rank_); }
  std::string global_name(int rank) const {
    return "rank " + std::to_string(group_->ranks[static_cast<size_t>(rank)]);
  }
  template <typename Span>
  static int64_t signed_size(Span span) {
    return static_cast<int64_t>(span.size());
  }
  static void copy(std::byte* to, const std::byte* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  void expect(bool fits, const char* collective, size_t wanted, size_t came) const {
    if (fits) return;
    throw ShapeError(format(
        "%s: expected a buffer of %zu bytes, got %zu", describe(collective).c_str(), wanted, came));
  }
  void expect_counts(const char* collective, std::span<const int64_t> counts, size_t bytes) const {
    size_t total = 0;
    for (const int64_t c : counts) total += static_cast<size_t>(c);
    expect(counts.size() == count(), collective, count(), counts.size());
    expect(total == bytes, collective, total, bytes);
  }
  void expect_rank(const char* collective, int peer) const {
    if (peer >= 0 && peer < size()) return;
    throw ShapeError(format(
        "%s: rank %d is outside the group of %d", describe(collective).c_str(), peer, size()));
  }

  Offer offer(const char* collective,
              std::span<const std::byte> in,
              std::vector<int64_t> in_bytes) const {
    Offer mine;
    mine.collective = collective;
    mine.text = describe(collective);
    mine.in = in.data();
    mine.in_bytes = std::move(in_bytes);
    return mine;
  }

  // The functions below are called with the group's mutex held.
  void enter(const std::string& text) {
    if (group_->failure) throw_failure(text);
    group_->inside[own()] = text;
  }
  void leave() { group_->inside[own()].clear(); }
  [[noreturn]] void throw_failure(const std::string& text) const {
    throw CommError(text + ": " + *group_->failure, group_->missing_rank);
  }

  // Waits until `ready`; blames the ranks of `needed` that are gone, or that have not come in time.
  void wait(std::unique_lock<std::mutex>& lock,
            const std::string& text,
            const std::vector<int>& needed,
            const std::function<bool()>& ready) {
    const auto deadline = Clock::now() + presence_->hub->timeout;
    for (;;) {
      if (group_->failure) throw_failure(text);
      if (ready()) return;
      for (const int r : needed) {
        const size_t at = static_cast<size_t>(r);
        if (group_->gone[at] && !group_->come[at]) {
          group_->fail(global_name(r) + " is gone", group_->ranks[at]);
          throw_failure(text);
        }
      }
      if (group_->changed.wait_until(lock, deadline) == std::cv_status::timeout && !ready() &&
          !group_->failure) {
        blame_late(text, needed);
      }
    }
  }

  [[noreturn]] void blame_late(const std::string& text, const std::vector<int>& needed) {
    std::vector<std::string> late;
    int first = -1;
    for (const int r : needed) {
      const size_t at = static_cast<size_t>(r);
      if (r == rank_ || group_->come[at]) continue;
      if (first < 0) first = group_->ranks[at];
      const std::string& inside = group_->inside[at];
      late.push_back(global_name(r) + (inside.empty() ? "" : " (it is in " + inside + ")"));
    }
    group_->fail(global_name(rank_) + " waited " +
                     format_ns(static_cast<double>(presence_->hub->timeout.count()) * 1e6) +
                     " for " + join(late, ", "),
                 first);
    throw_failure(text);
  }

  // Ranks must agree on the collective and on its sizes.
  void check_offers() {
    const Offer& mine = group_->offers[own()];
    for (size_t r = 0; r < count(); ++r) {
      const Offer& peer = group_->offers[r];
      bool equal = std::strcmp(mine.collective, peer.collective) == 0 && mine.root == peer.root;
      if (equal && mine.out_bytes.empty()) equal = mine.in_bytes == peer.in_bytes;
      if (equal && !mine.out_bytes.empty()) equal = mine.out_bytes[r] == peer.in_bytes[own()];
      if (equal) continue;
      const auto detail = [](const Offer& o) {
        return o.text + (o.root >= 0 ? ", root " + std::to_string(o.root) : std::string()) + ", " +
               count_text(o.in_bytes) + " bytes" +
               (o.out_bytes.empty() ? "" : " for " + count_text(o.out_bytes));
      };
      group_->fail("ranks disagree: " + global_name(rank_) + " is in " + detail(mine) + "; " +
                       global_name(static_cast<int>(r)) + " is in " + detail(peer) +
                       ". Every rank of a group must issue the same calls in the same order",
                   -1);
      throw_failure(mine.text);
    }
  }

  // Also after a failure the caller's buffers must outlive the peers that are reading them.
  struct Settle {
    Group& group;
    std::unique_lock<std::mutex>& lock;
    ~Settle() {
      group.changed.wait(lock, [this] { return group.copying == 0; });
    }
  };

  void collective(Offer mine, const std::function<void(size_t, const Offer&)>& take) {
    const std::string text = mine.text;
    std::vector<int> everyone(count());
    for (size_t r = 0; r < count(); ++r) everyone[r] = static_cast<int>(r);
    std::unique_lock lock(group_->mutex);
    enter(text);
    const Settle settle{*group_, lock};
    const uint64_t generation = group_->generation;
    group_->offers[own()] = std::move(mine);
    group_->come[own()] = true;
    if (++group_->come_count == size()) group_->changed.notify_all();
    wait(lock, text, everyone, [&] { return group_->come_count == size(); });
    check_offers();
    ++group_->copying;
    lock.unlock();
    // Offers stay as they are until every rank has counted itself done.
    for (size_t r = 0; r < count(); ++r) take(r, group_->offers[r]);
    lock.lock();
    if (--group_->copying == 0) group_->changed.notify_all();
    if (++group_->done_count == size()) {
      group_->done_count = 0;
      group_->come_count = 0;
      std::fill(group_->come.begin(), group_->come.end(), false);
      ++group_->generation;
      group_->changed.notify_all();
    }
    wait(lock, text, everyone, [&] { return group_->generation != generation; });
    leave();
  }

  std::shared_ptr<Group> group_;
  std::shared_ptr<Presence> presence_;
  int rank_;
};

class LocalWorld : public World {
 public:
  LocalWorld(std::shared_ptr<Hub> hub, int rank)
      : hub_(hub), presence_(std::make_shared<Presence>(hub, rank)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->places.size()); }

  std::shared_ptr<Communicator> group(const std::vector<int>& ranks,
                                      const std::string& name) override {
    const auto at = std::find(ranks.begin(), ranks.end(), rank_);
    const bool ascending =
        std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal()) == ranks.end();
    if (at == ranks.end() || !ascending || ranks.front() < 0 || ranks.back() >= size()) {
      throw ConfigError("group '" + name + "': expected ascending ranks of 0.." +
                        std::to_string(size() - 1) + " with rank " + std::to_string(rank_) +
                        " among them");
    }
    const std::lock_guard lock(hub_->mutex);
    if (hub_->aborted) throw CommError("group '" + name + "': " + *hub_->aborted);
    std::shared_ptr<Group>& group = hub_->groups[{name, ranks}];
    if (!group) group = std::make_shared<Group>(ranks, name);
    return std::make_shared<LocalCommunicator>(
        group, presence_, static_cast<int>(at - ranks.begin()));
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
