// Rendezvous of threads: collectives, their agreement, and whom to blame.
#include "comm/local_communicator.h"

#include <cstring>

#include "comm/call_checks.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine::local {
namespace {

std::string count_text(const std::vector<int64_t>& bytes) {
  std::vector<std::string> parts;
  for (const int64_t b : bytes) parts.push_back(std::to_string(b));
  return parts.size() == 1 ? parts[0] : "[" + join(parts, ", ") + "]";
}

void copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Also after a failure the caller's buffers must outlive the peers that are reading them.
struct Settle {
  Group& group;
  std::unique_lock<std::mutex>& lock;
  ~Settle() {
    group.changed.wait(lock, [this] { return group.copying == 0; });
  }
};

}  // namespace

void LocalCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  check_bytes(*this, "all_gather", in.size() * count(), out.size());
  collective(offer("all_gather", in), [&](size_t r, const Offer& peer) {
    std::byte* to = out.data() + r * in.size();
    if (to != peer.in) copy(to, peer.in, in.size());
  });
}

void LocalCommunicator::all_to_all(std::span<const std::byte> in, std::span<std::byte> out) {
  check_bytes(*this, "all_to_all", in.size(), out.size());
  check_bytes(*this, "all_to_all", in.size() / count() * count(), in.size());
  const size_t piece = in.size() / count();
  collective(offer("all_to_all", in), [&](size_t r, const Offer& peer) {
    copy(out.data() + r * piece, peer.in + own() * piece, piece);
  });
}

void LocalCommunicator::all_to_all_v(std::span<const std::byte> in,
                                     std::span<const int64_t> in_bytes,
                                     std::span<std::byte> out,
                                     std::span<const int64_t> out_bytes) {
  check_counts(*this, "all_to_all_v", in_bytes, in.size());
  check_counts(*this, "all_to_all_v", out_bytes, out.size());
  Offer mine = offer("all_to_all_v", in);
  mine.in_bytes.assign(in_bytes.begin(), in_bytes.end());
  mine.out_bytes.assign(out_bytes.begin(), out_bytes.end());
  std::byte* to = out.data();
  collective(std::move(mine), [&](size_t r, const Offer& peer) {
    const std::byte* from = peer.in;
    for (size_t i = 0; i < own(); ++i) from += peer.in_bytes[i];
    copy(to, from, static_cast<size_t>(out_bytes[r]));
    to += out_bytes[r];
  });
}

void LocalCommunicator::broadcast(std::span<std::byte> data, int root) {
  check_peer(*this, "broadcast", root);
  Offer mine = offer("broadcast", data);
  mine.root = root;
  collective(std::move(mine), [&](size_t r, const Offer& peer) {
    if (static_cast<int>(r) == root && rank_ != root) copy(data.data(), peer.in, data.size());
  });
}

bool LocalCommunicator::sum_through(TermAdder* adder, DType dtype) {
  const bool can = dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  adder_ = can ? adder : nullptr;
  return can;
}

void LocalCommunicator::barrier() {
  collective(offer("barrier", {}), [](size_t, const Offer&) {});
}

void LocalCommunicator::send(std::span<const std::byte> data, int to) {
  check_peer(*this, "send", to);
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

void LocalCommunicator::receive(std::span<std::byte> data, int from) {
  check_peer(*this, "receive", from);
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

void LocalCommunicator::abort() noexcept {
  const std::lock_guard lock(group_->mutex);
  group_->fail("aborted by " + global_name(rank_), -1);
}

void LocalCommunicator::exchange(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t piece = in.size() / count();
  collective(offer("reduce_scatter", in), [&](size_t r, const Offer& peer) {
    if (r == own()) return;
    copy(out.data() + (r < own() ? r : r - 1) * piece, peer.in + own() * piece, piece);
  });
}

Offer LocalCommunicator::offer(const char* collective, std::span<const std::byte> in) const {
  Offer mine;
  mine.collective = collective;
  mine.text = describe(collective);
  mine.in = in.data();
  mine.in_bytes = {static_cast<int64_t>(in.size())};
  return mine;
}

void LocalCommunicator::enter(const std::string& text) {
  if (group_->failure) throw_failure(text);
  group_->inside[own()] = text;
}

void LocalCommunicator::throw_failure(const std::string& text) const {
  throw CommError(text + ": " + *group_->failure, group_->missing_rank);
}

void LocalCommunicator::wait(std::unique_lock<std::mutex>& lock,
                             const std::string& text,
                             const std::vector<int>& needed,
                             const std::function<bool()>& ready) {
  const auto deadline = std::chrono::steady_clock::now() + presence_->hub->timeout;
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

void LocalCommunicator::blame_late(const std::string& text, const std::vector<int>& needed) {
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
                   format_ns(static_cast<double>(presence_->hub->timeout.count()) * 1e6) + " for " +
                   join(late, ", "),
               first);
  throw_failure(text);
}

void LocalCommunicator::check_offers() {
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

void LocalCommunicator::collective(Offer mine,
                                   const std::function<void(size_t, const Offer&)>& take) {
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

}  // namespace vitrine::local
