// What the names of host spans mean: calls that launch, wait or allocate; operators and regions of
// a phase; the profiler's own work.
#pragma once

#include <string>
#include <vector>

#include "analysis/rank_facts.h"

namespace vitrine {

enum class CallRole : uint8_t {
  kForeign,       // of no runtime that is known here: it launches what shares its correlation
  kOther,         // launches nothing and waits for nothing
  kLaunch,        // of a kernel, copy or set
  kGraphLaunch,   // of a captured graph
  kSync,          // returns only when the device is done
  kBlockingCopy,  // launches a copy and waits for it
  kStreamWait,    // makes a stream wait for an event
  kAllocator      // takes or gives back memory of the device, or pinned memory
};

struct HostWord {
  CallRole call = CallRole::kForeign;
  Phase region_phase = Phase::kOther, operator_phase = Phase::kOther;
  bool sync_operator = false;  // an operator that reads a value back: item(), nonzero(), ...
  // A module's operator of forward, which no operator's own backward calls.
  bool forward_only = false;
  bool framework_region = false;  // named by PyTorch or NCCL, not by the user
  bool backward_node = false;     // one node of the autograd graph
  bool profiler = false;
};

HostWord host_word(const std::string& name);

// Looked up once a name.
class HostWords {
 public:
  explicit HostWords(const StringPool& strings)
      : strings_(strings), words_(strings.size()), known_(strings.size(), false) {}
  const HostWord& operator[](StringId name) {
    if (!known_[name]) words_[name] = host_word(strings_[name]), known_[name] = true;
    return words_[name];
  }

 private:
  const StringPool& strings_;
  std::vector<HostWord> words_;
  std::vector<bool> known_;
};

}  // namespace vitrine
