// One rank's end of a group whose ranks are threads.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/local_group.h"

namespace vitrine::local {

// A collective is a rendezvous, after which each rank copies what it needs out of its peers'
// buffers.
class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, std::shared_ptr<Presence> presence, int rank)
      : group_(std::move(group)), presence_(std::move(presence)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->ranks.size()); }
  const std::vector<int>& global_ranks() const override { return group_->ranks; }
  const std::string& name() const override { return group_->name; }
  void all_gather(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all(std::span<const std::byte> in, std::span<std::byte> out) override;
  void all_to_all_v(std::span<const std::byte> in,
                    std::span<const int64_t> in_bytes,
                    std::span<std::byte> out,
                    std::span<const int64_t> out_bytes) override;
  void broadcast(std::span<std::byte> data, int root) override;
  void send(std::span<const std::byte> data, int to) override;
  void receive(std::span<std::byte> data, int from) override;
  void barrier() override;
  bool sum_through(TermAdder* adder, DType dtype) override;
  void abort() noexcept override;

 protected:
  void exchange(std::span<const std::byte> in, std::span<std::byte> out) override;

 private:
  size_t count() const { return group_->ranks.size(); }
  size_t own() const { return static_cast<size_t>(rank_); }
  std::string global_name(int rank) const {
    return "rank " + std::to_string(group_->ranks[static_cast<size_t>(rank)]);
  }
  Offer offer(const char* collective, std::span<const std::byte> in) const;
  // take(r, offer of rank r) copies from the peers' buffers; called for every rank, the own one
  // too.
  void collective(Offer mine, const std::function<void(size_t, const Offer&)>& take);

  // The functions below are called with the group's mutex held.
  void enter(const std::string& text);
  void leave() { group_->inside[own()].clear(); }
  [[noreturn]] void throw_failure(const std::string& text) const;
  // Waits until `ready`; blames the ranks of `needed` that are gone, or that have not come in time.
  void wait(std::unique_lock<std::mutex>& lock,
            const std::string& text,
            const std::vector<int>& needed,
            const std::function<bool()>& ready);
  [[noreturn]] void blame_late(const std::string& text, const std::vector<int>& needed);
  // Ranks must agree on the collective and on its sizes.
  void check_offers();

  std::shared_ptr<Group> group_;
  std::shared_ptr<Presence> presence_;
  int rank_;
};

}  // namespace vitrine::local
