// Pairwise exchanges over Gloo, their deadlines and their failures.
#include "comm/gloo_communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/call_checks.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// One buffer a peer and direction, so that it is known who has not come.
struct GlooCommunicator::Call {
  struct Transfer {
    int peer;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool done = false;
  };
  std::vector<Transfer> sends, receives;
};

GlooCommunicator::GlooCommunicator(std::shared_ptr<gloo::Context> context,
                                   std::unique_ptr<SharedPipes> pipes,
                                   std::shared_ptr<Control> control,
                                   std::vector<int> ranks,
                                   int rank,
                                   std::string name,
                                   milliseconds timeout)
    : context_(std::move(context)),
      pipes_(std::move(pipes)),
      control_(std::move(control)),
      ranks_(std::move(ranks)),
      rank_(rank),
      name_(std::move(name)),
      timeout_(timeout),
      sent_(ranks_.size()),
      received_(ranks_.size()) {
  control_->watch(this);
}

GlooCommunicator::~GlooCommunicator() { control_->unwatch(this); }

// Sizes are part of the slot: ranks that disagree never meet, and time out instead of writing out
// of bounds.
uint64_t GlooCommunicator::slot(Kind kind, uint64_t sequence, size_t bytes) {
  const uint64_t size_hash = (static_cast<uint64_t>(bytes) * 0x9e3779b97f4a7c15u) >> 36;
  return static_cast<uint64_t>(kind) << 60 | (sequence & 0xffffffffu) << 28 | size_hash;
}

void GlooCommunicator::all_gather(std::span<const std::byte> in, std::span<std::byte> out) {
  check_bytes(*this, "all_gather", in.size() * count(), out.size());
  std::byte* mine = out.data() + own() * in.size();
  if (mine != in.data() && !in.empty()) std::memcpy(mine, in.data(), in.size());
  std::vector<Part> sends, receives;
  for (size_t r = 0; r < count(); ++r) {
    sends.push_back({static_cast<int>(r), mine, in.size()});
    receives.push_back({static_cast<int>(r), out.data() + r * in.size(), in.size()});
  }
  transfer_with_all("all_gather", Kind::kGather, sends, receives);
}

void GlooCommunicator::all_to_all(std::span<const std::byte> in, std::span<std::byte> out) {
  check_bytes(*this, "all_to_all", in.size(), out.size());
  check_bytes(*this, "all_to_all", in.size() / count() * count(), in.size());
  const size_t piece = in.size() / count();
  if (piece > 0) std::memcpy(out.data() + own() * piece, in.data() + own() * piece, piece);
  std::vector<Part> sends, receives;
  for (size_t r = 0; r < count(); ++r) {
    sends.push_back({static_cast<int>(r), writable(in) + r * piece, piece});
    receives.push_back({static_cast<int>(r), out.data() + r * piece, piece});
  }
  transfer_with_all("all_to_all", Kind::kExchange, sends, receives);
}

void GlooCommunicator::exchange(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t piece = in.size() / count();
  std::vector<Part> sends, receives;
  for (size_t r = 0; r < count(); ++r) {
    const size_t at = r < own() ? r : r - 1;  // not used for the own rank
    sends.push_back({static_cast<int>(r), writable(in) + r * piece, piece});
    receives.push_back(
        {static_cast<int>(r), r == own() ? nullptr : out.data() + at * piece, piece});
  }
  transfer_with_all("reduce_scatter", Kind::kReduce, sends, receives);
}

void GlooCommunicator::all_to_all_v(std::span<const std::byte> in,
                                    std::span<const int64_t> in_bytes,
                                    std::span<std::byte> out,
                                    std::span<const int64_t> out_bytes) {
  check_counts(*this, "all_to_all_v", in_bytes, in.size());
  check_counts(*this, "all_to_all_v", out_bytes, out.size());
  std::vector<Part> sends, receives;
  size_t from = 0, to = 0;
  for (size_t r = 0; r < count(); ++r) {
    const size_t sent = static_cast<size_t>(in_bytes[r]);
    const size_t received = static_cast<size_t>(out_bytes[r]);
    sends.push_back({static_cast<int>(r), writable(in) + from, sent});
    receives.push_back({static_cast<int>(r), out.data() + to, received});
    from += sent;
    to += received;
  }
  check_bytes(*this, "all_to_all_v (own piece)", sends[own()].bytes, receives[own()].bytes);
  if (sends[own()].bytes > 0) {
    std::memcpy(receives[own()].data, sends[own()].data, sends[own()].bytes);
  }
  transfer_with_all("all_to_all_v", Kind::kExchangeV, sends, receives);
}

void GlooCommunicator::broadcast(std::span<std::byte> data, int root) {
  check_peer(*this, "broadcast", root);
  const uint64_t sequence = collectives_++;
  const int n = size();
  // A binomial tree: in counted from the root, rank v gets the data from v without its lowest bit.
  const int v = (rank_ - root + n) % n;
  const auto actual = [&](int u) { return (u + root) % n; };
  int bit = 1;
  while (bit < n && (v & bit) == 0) bit <<= 1;
  if (v != 0) {
    transfer(
        "broadcast", Kind::kBroadcast, sequence, {}, {{actual(v - bit), data.data(), data.size()}});
  }
  std::vector<Part> sends;
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (v + bit < n) sends.push_back({actual(v + bit), data.data(), data.size()});
  }
  transfer("broadcast", Kind::kBroadcast, sequence, sends, {});
}

void GlooCommunicator::send(std::span<const std::byte> data, int to) {
  check_peer(*this, "send", to);
  const uint64_t sequence = sent_[static_cast<size_t>(to)]++;
  transfer("send", Kind::kSend, sequence, {{to, writable(data), data.size()}}, {});
}

void GlooCommunicator::receive(std::span<std::byte> data, int from) {
  check_peer(*this, "receive", from);
  const uint64_t sequence = received_[static_cast<size_t>(from)]++;
  transfer("receive", Kind::kSend, sequence, {}, {{from, data.data(), data.size()}});
}

void GlooCommunicator::barrier() {
  // Everyone to everyone rather than a tree, so that an error names the rank that is truly missing.
  std::byte nothing{};
  std::vector<std::byte> heard(count());
  std::vector<Part> sends, receives;
  for (size_t r = 0; r < count(); ++r) {
    sends.push_back({static_cast<int>(r), &nothing, 1});
    receives.push_back({static_cast<int>(r), &heard[r], 1});
  }
  transfer_with_all("barrier", Kind::kBarrier, sends, receives);
}

void GlooCommunicator::transfer_with_all(const char* collective,
                                         Kind kind,
                                         const std::vector<Part>& sends,
                                         const std::vector<Part>& receives) {
  std::vector<Part> to, from;
  for (size_t i = 1; i < count(); ++i) {
    // Each rank begins with another peer, so that no rank is asked by all at once.
    const Part& next = sends[(own() + i) % count()];
    const Part& last = receives[(own() + count() - i) % count()];
    if (next.bytes > 0) to.push_back(next);
    if (last.bytes > 0) from.push_back(last);
  }
  transfer(collective, kind, collectives_++, to, from);
}

void GlooCommunicator::transfer(const char* collective,
                                Kind kind,
                                uint64_t sequence,
                                const std::vector<Part>& sends,
                                const std::vector<Part>& receives) {
  if (pipes_) return transfer_by_pipes(collective, kind, sequence, sends, receives);
  const Deadline deadline = steady_clock::now() + timeout_;
  Call call;
  const auto prepare = [&](const std::vector<Part>& parts, std::vector<Call::Transfer>& transfers) {
    for (const Part& part : parts) {
      transfers.push_back({part.peer, context_->createUnboundBuffer(part.data, part.bytes)});
    }
  };
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw_failure(describe(collective));
    prepare(receives, call.receives);
    prepare(sends, call.sends);
    call_ = &call;
  }
  try {
    for (auto& t : call.receives) t.buffer->recv(t.peer, slot(kind, sequence, t.buffer->size));
    for (auto& t : call.sends) t.buffer->send(t.peer, slot(kind, sequence, t.buffer->size));
    wait(call, deadline);
  } catch (const std::exception& error) {
    give_up(collective, call, error.what(), steady_clock::now() >= deadline);
  }
  const std::lock_guard lock(mutex_);
  call_ = nullptr;
}

void GlooCommunicator::transfer_by_pipes(const char* collective,
                                         Kind kind,
                                         uint64_t sequence,
                                         const std::vector<Part>& sends,
                                         const std::vector<Part>& receives) {
  const Deadline deadline = steady_clock::now() + timeout_;
  const auto failed = [this] {
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
  };
  const auto messages = [&](const std::vector<Part>& parts) {
    std::vector<SharedPipes::Message> made;
    for (const Part& p : parts) {
      made.push_back({p.peer, p.data, p.bytes, slot(kind, sequence, p.bytes), kind == Kind::kSend});
    }
    return made;
  };
  std::vector<SharedPipes::Message> to = messages(sends), from = messages(receives);
  std::string why;
  if (!failed()) {
    try {
      if (pipes_->move(to, from, deadline, failed)) return;
    } catch (const CommError& error) {
      why = error.what();
    }
  }
  if (failed()) {
    const std::lock_guard lock(mutex_);
    throw_failure(describe(collective));
  }
  std::set<int> missing;
  for (const auto* all : {&from, &to}) {
    for (const SharedPipes::Message& m : *all)
      if (!m.done) missing.insert(m.peer);
  }
  blame(collective, missing, why, why.empty());
}

void GlooCommunicator::wait(Call& call, Deadline deadline) {
  const auto left = [&] {
    return std::max(
        milliseconds(1),
        std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now() + milliseconds(1)));
  };
  for (auto& t : call.receives) {
    t.done = t.buffer->waitRecv(left());
    if (!t.done) throw CommError("aborted");
  }
  for (auto& t : call.sends) {
    t.done = t.buffer->waitSend(left());
    if (!t.done) throw CommError("aborted");
  }
}

void GlooCommunicator::give_up(const char* collective,
                               Call& call,
                               const std::string& why,
                               bool timed_out) {
  // Connections first: Gloo ends the process when data comes for a buffer that is no more.
  close();
  std::set<int> missing;
  {
    const std::lock_guard lock(mutex_);
    call_ = nullptr;
    if (failure_) throw_failure(describe(collective));
  }
  // Waiting ended at the first that failed; later ones may be complete.
  for (const bool receiving : {true, false}) {
    for (auto& t : receiving ? call.receives : call.sends) {
      try {
        const milliseconds now{1};
        t.done = t.done || (receiving ? t.buffer->waitRecv(now) : t.buffer->waitSend(now));
      } catch (const std::exception&) {
      }
      if (!t.done) missing.insert(t.peer);
    }
  }
  blame(collective, missing, why, timed_out);
}

void GlooCommunicator::blame(const char* collective,
                             const std::set<int>& missing,
                             const std::string& why,
                             bool timed_out) {
  std::vector<int> global;
  for (const int peer : missing) global.push_back(ranks_[static_cast<size_t>(peer)]);
  if (timed_out) control_->report_waited_for(global);
  const World::Suspect suspect = control_->suspect(step_, what_.empty() ? collective : what_);
  std::string text = suspect.sentence;
  if (timed_out) {
    std::vector<std::string> names;
    for (const int r : global) names.push_back(std::to_string(r));
    text += "; waited " + format_ns(static_cast<double>(timeout_.count()) * 1e6) + " for rank " +
            join(names, ", ");
  } else {
    text += " (" + why + ")";
  }
  fail(text, suspect.rank);
  const std::lock_guard lock(mutex_);
  throw_failure(describe(collective));
}

void GlooCommunicator::throw_failure(const std::string& call) const {
  throw CommError(call + ": " + *failure_, missing_rank_);
}

void GlooCommunicator::abort() noexcept {
  const std::string why = "aborted by rank " + std::to_string(ranks_[own()]);
  fail(why, -1);
}

void GlooCommunicator::fail(const std::string& why, int missing_rank) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = why;
      missing_rank_ = missing_rank;
    }
    if (call_ != nullptr) {
      for (auto& t : call_->receives) t.buffer->abortWaitRecv();
      for (auto& t : call_->sends) t.buffer->abortWaitSend();
    }
  }
  if (pipes_) pipes_->wake();
  close();
}

void GlooCommunicator::close() noexcept {
  if (!context_) return;
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
    // A connection that is broken already.
  }
}

}  // namespace vitrine
