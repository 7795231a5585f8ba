// Keeps what the blocks of a step issued as graphs of the device, and issues these instead where
// everything that they depend on is the same again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"

namespace vitrine {

// Which blocks are replayed: none; those whose kernels are too short for the host to keep ahead, by
// measurement; or all that can be.
enum class Graphs : uint8_t { kOff, kAuto, kOn };
const char* graphs_name(Graphs graphs);
// "off", "auto", "on"; throws ConfigError.
Graphs graphs_from_name(std::string_view name);

// Block actions since the start.
struct GraphCounts {
  int64_t issued = 0, replayed = 0;  // operation by operation; as one graph
  int64_t captured = 0;              // graphs made
  int64_t refused = 0;               // kinds of action that cannot be captured
  std::string why_refused;           // the first of them
  GraphCounts& operator+=(const GraphCounts& other);
};

// Everything that may differ between two runs of one action and that its kernels see. Compared
// whole, never by a hash.
class GraphKey {
 public:
  void add(uint64_t word) { words_.push_back(word); }
  void add(const void* address) { add(reinterpret_cast<uintptr_t>(address)); }
  bool operator==(const GraphKey&) const = default;

 private:
  std::vector<uint64_t> words_;
};

// Of one runner, used by its compute lane's thread alone. An action is a number: the same number
// always issues the same operations on the same shapes, and only what is in the key may differ.
class GraphCache {
 public:
  // Addresses repeat with a period of one step, or of a few where buffers take turns.
  static constexpr int kKeysAMicroBatch = 4;
  // So often a key's place is used; beyond it an action's addresses are taken to change for ever.
  static constexpr int kCapturesAKey = 4;
  // Of accumulation without an end.
  static constexpr int kMostKeys = 64;

  // `measured`: only what pays is captured; otherwise everything. Each of a step's micro-batches
  // runs an action once.
  GraphCache(Device& device, bool measured, int64_t micro_batches = 1);

  // Between steps, with the compute lane's work done: what is no longer used is freed here.
  void begin_step() { retired_.clear(); }
  // Issues by issue(), or by a graph of an earlier issue() with this key. Keys that are seen for
  // the first time are always issued, as first calls choose kernels and allocate scratch. What
  // issue() throws is thrown on.
  void run(int action, GraphKey key, const std::function<void()>& issue);

  const GraphCounts& counts() const { return counts_; }
  // Keys that an action may have at once.
  size_t keys_an_action() const { return keys_; }

 private:
  enum class Verdict : uint8_t { kUnknown, kMeasuring, kCapture, kIssue };
  struct Entry {
    GraphKey key;
    bool seen = false;  // before this run
    std::unique_ptr<CapturedWork> work;
  };
  struct Action {
    Verdict verdict = Verdict::kUnknown;
    int captures = 0;
    std::vector<Entry> entries;      // the last used first
    std::shared_ptr<void> from, to;  // of the run that was measured
    int64_t host_ns = 0;
  };

  Entry& entry_of(Action& action, GraphKey key);
  void measure(Action& action, const std::function<void()>& issue);
  void judge(Action& action);
  bool capture(Action& action, Entry& entry, const std::function<void()>& issue);

  Device& device_;
  bool measured_;
  size_t keys_;
  std::map<int, Action> actions_;
  std::vector<std::unique_ptr<CapturedWork>> retired_;  // may still run
  GraphCounts counts_;
};

}  // namespace vitrine
