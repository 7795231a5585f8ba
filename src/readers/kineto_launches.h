// Which host call launched which device work, by correlation.
#pragma once

#include <cstdint>
#include <vector>

#include "readers/kineto_draft.h"

namespace vitrine {

// Of sorted spans. In a file merged from several processes one number may mean several launches;
// then the process that each card belongs to is found by majority (the numbers that only one
// process used, and what was launched last before the work began), and the numbers of spans are
// changed so that they are unique.
class KinetoLaunches {
 public:
  explicit KinetoLaunches(KinetoDraft& draft);

  static constexpr uint32_t kNone = ~uint32_t{0};
  // The span of the call that launched a span of a device lane, or kNone.
  uint32_t launch_of(size_t span) const;
  bool several_processes() const { return processes_.size() > 1; }

  // Warns of work before its launch or without one, of launches without work, and of several
  // processes.
  void warn() const;

 private:
  void index();
  void separate();
  uint32_t find(int64_t correlation, int32_t process) const;
  bool is_launch(size_t span) const;

  KinetoDraft& draft_;
  std::vector<uint8_t> device_;           // by lane
  std::vector<int32_t> process_of_lane_;  // of host lanes: index into processes_, else -1
  std::vector<std::string> processes_;    // pids of the host, those that launch
  std::vector<uint32_t> slots_;           // open addressing by correlation: spans of launches
  bool collide_ = false;                  // two processes use one number
};

}  // namespace vitrine
