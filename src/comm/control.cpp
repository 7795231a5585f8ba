// The background thread that reports and listens, and the judgement on who is missing.
#include "comm/control.h"

#include <algorithm>
#include <sstream>

#include "comm/lag.h"
#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kReportEvery{250};
// Eight reports missed: a busy host delays a few, a stopped process sends none.
constexpr int64_t kSilentMs = 2000;
constexpr milliseconds kAskFor{1200};
constexpr milliseconds kStoreLinger{2000};
constexpr milliseconds kLateRank{5000};  // the start of a process on a busy host

bool is_single_host(const RankEnvironment& e) { return e.local_size == e.size; }

// Loopback stays private; otherwise every interface, since MASTER_ADDR may be a name that this host
// itself resolves to a loopback address.
std::string listen_address(const RankEnvironment& e) {
  if (is_single_host(e) && is_loopback(local_address_towards(e.master_address))) {
    return e.master_address;
  }
  return "";
}

}  // namespace

Control::Control(const RankEnvironment& environment, milliseconds timeout)
    : environment_(environment), timeout_(timeout) {
  const auto& e = environment_;
  if (e.rank == 0) {
    server_ = std::make_unique<TcpStoreServer>(listen_address(e), e.master_port, e.size);
  }
  store_ = std::make_unique<TcpStoreClient>(
      e.master_address, e.master_port, e.rank, e.size, false, timeout);
  line_ = std::make_unique<TcpStoreClient>(
      e.master_address, e.master_port, e.rank, e.size, true, timeout);
  thread_ = std::thread([this] { run(); });
}

Control::~Control() {
  stop_ = true;
  std::optional<std::pair<std::string, int>> failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
  }
  try {
    if (failure) line_->report_aborted(failure->first);
    line_->report_leaving();
  } catch (const CommError&) {
  }
  line_->stop_notices();
  thread_.join();
  line_.reset();
  store_.reset();
  // The others may still want to ask; after a failure, why it happened.
  if (server_) server_->wait_for_others(kStoreLinger, kLateRank);
}

void Control::progress(int64_t step, const std::string& what) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  what_ = what;
  ++sequence_;
}

void Control::watch(Abortable* target) {
  const std::lock_guard watching(watch_mutex_);
  watched_.push_back(target);
  const std::lock_guard lock(mutex_);
  if (failure_) target->fail(failure_->first, failure_->second);
}

void Control::unwatch(Abortable* target) {
  const std::lock_guard watching(watch_mutex_);
  std::erase(watched_, target);
}

void Control::fail_all(const std::string& why, int missing_rank) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = {why, missing_rank};
  }
  store_->cancel();
  const std::lock_guard watching(watch_mutex_);
  for (Abortable* target : watched_) target->fail(why, missing_rank);
}

void Control::abort(const std::string& reason) noexcept {
  const std::string rank = std::to_string(environment_.rank);
  try {
    line_->report_aborted(reason);
  } catch (const CommError&) {
    // Broken connections will tell the others.
  }
  fail_all("aborted by rank " + rank + ": " + reason, -1);
}

void Control::run() {
  Deadline next = steady_clock::now();
  try {
    while (!stop_) {
      if (steady_clock::now() >= next) report(next);
      const std::vector<int> lost = line_->wait_for_notices(next);
      if (lost.empty() || stop_) continue;
      // It may be a victim itself; the store knows what came first.
      const World::Suspect cause = suspect();
      const bool known = cause.rank >= 0;
      fail_all(known ? cause.sentence : "rank " + std::to_string(lost[0]) + " is gone",
               known ? cause.rank : lost[0]);
    }
  } catch (const CommError&) {
    if (!stop_) fail_all("rank 0 is gone", 0);
  }
}

void Control::report(Deadline& next) {
  int64_t step, sequence;
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    step = step_;
    sequence = sequence_;
    what = what_;
  }
  line_->report_progress(step, sequence, what);
  next = steady_clock::now() + kReportEvery;
}

void Control::report_waited_for(const std::vector<int>& ranks) {
  try {
    line_->report_waited_for(ranks);
  } catch (const CommError&) {
    // suspect() will find that the store is gone.
  }
}

World::Suspect Control::suspect() {
  int64_t step;
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    step = step_;
    what = what_;
  }
  return suspect(step, what);
}

World::Suspect Control::suspect(int64_t step, const std::string& what) {
  const Deadline deadline = steady_clock::now() + kAskFor;
  try {
    Deadline unused;
    report(unused);
    // Its own connection: the others may be held by a rendezvous that waits for the missing rank.
    TcpStoreClient asking(environment_.master_address,
                          environment_.master_port,
                          environment_.rank,
                          environment_.size,
                          false,
                          kAskFor);
    for (;;) {
      const bool last_word = steady_clock::now() >= deadline;
      const World::Suspect found = judge(asking.table(), step, what, last_word);
      if (found.rank >= 0 || last_word) return found;
      std::this_thread::sleep_for(milliseconds(50));
    }
  } catch (const CommError& error) {
    const bool lost = error.missing_rank() == 0;
    return {0, lost ? "rank 0 is gone" : "rank 0 does not respond"};
  }
}

World::Suspect Control::judge(const std::vector<RankStatus>& table,
                              int64_t step,
                              const std::string& what,
                              bool last_word) const {
  using State = RankStatus::State;
  const auto place = [&](int r) {
    const RankStatus& s = table[static_cast<size_t>(r)];
    return std::pair(s.step, s.sequence);
  };
  const auto lag = [&](int r) {
    const RankStatus& s = table[static_cast<size_t>(r)];
    return lag_sentence(r, step, what, s.step, s.what);
  };
  const auto name = [](int r) { return "rank " + std::to_string(r); };
  const int ranks = static_cast<int>(table.size());
  int gone = -1, silent = -1, gave_up = -1, aborted = -1, behind = -1, left = -1;
  for (int r = 0; r < ranks; ++r) {
    const RankStatus& s = table[static_cast<size_t>(r)];
    const auto earlier = [&](int64_t RankStatus::*order, int best) {
      return best < 0 || s.*order < table[static_cast<size_t>(best)].*order;
    };
    if (s.state == State::kGone && earlier(&RankStatus::gone_order, gone)) gone = r;
    if (s.state == State::kAlive && s.silent_ms > kSilentMs && silent < 0) silent = r;
    if (!s.waited_for.empty() && earlier(&RankStatus::waited_order, gave_up)) gave_up = r;
    if (s.aborted_order > 0 && earlier(&RankStatus::aborted_order, aborted)) aborted = r;
    if (s.state == State::kLeft && left < 0 && r != environment_.rank) left = r;
    if (behind < 0 || place(r) < place(behind)) behind = r;
  }
  if (gone >= 0) return {gone, name(gone) + " is gone"};
  if (silent >= 0) {
    const double ns = static_cast<double>(table[static_cast<size_t>(silent)].silent_ms) * 1e6;
    return {silent, lag(silent) + " and does not respond since " + format_ns(ns)};
  }
  if (gave_up >= 0) {
    // Of those that the first one waited for, the one that came least far.
    std::istringstream list(table[static_cast<size_t>(gave_up)].waited_for);
    int best = -1;
    for (int r = 0; list >> r;) {
      if (r >= 0 && r < ranks && (best < 0 || place(r) < place(best))) best = r;
    }
    if (best >= 0) return {best, lag(best)};
  }
  if (aborted >= 0) {
    return {aborted, name(aborted) + " aborted: " + table[static_cast<size_t>(aborted)].aborted};
  }
  if (!last_word) return {};
  if (left >= 0) return {left, name(left) + " has left"};
  if (behind >= 0 && place(behind) < place(environment_.rank)) return {behind, lag(behind)};
  return {-1, "no rank is known to be missing; ranks may disagree on the call or its size"};
}

}  // namespace vitrine
