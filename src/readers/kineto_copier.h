// Copies parts of a draft into others, with numbers of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "readers/kineto_draft.h"

namespace vitrine {

// One part after another. A table's entry is of the part whose turn it bears, so that many parts
// cost no more than few.
class KinetoCopier {
 public:
  explicit KinetoCopier(const KinetoDraft& from);

  // From now on `to` gets what is added. `pids`: of `from` -> of the part's own; null = they are
  // the same.
  void begin(KinetoDraft& to, const std::map<std::string, std::string>* pids);
  void add_span(size_t index);
  void add(const KinetoDraft::Announcement& call);
  void add(const KinetoDraft::Own& own, uint32_t span);  // `span`: its index in the part
  void add(const KinetoDraft::Series& sample);
  void add(const KinetoDraft::SeenGroup& seen);

 private:
  struct Entry {
    uint32_t turn = 0, number = 0;
  };
  bool known(Entry& entry, size_t next) const;
  std::string pid_of(const std::string& pid) const;
  StringId text(StringId id);
  int32_t lane(int32_t id);
  int32_t collective(int32_t id);

  const KinetoDraft& from_;
  KinetoDraft* to_ = nullptr;
  const std::map<std::string, std::string>* pids_ = nullptr;
  uint32_t turn_ = 0;
  std::vector<Entry> strings_, lanes_, collectives_;
};

}  // namespace vitrine
