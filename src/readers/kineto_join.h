// Joins the pieces of a trace, in the order of the file, into one draft.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "readers/kineto_draft.h"

namespace vitrine {

class KinetoJoiner {
 public:
  KinetoJoiner(KinetoDraft& draft, size_t parsers) : draft_(draft), tables_(parsers) {}

  // All parsers are new, and count from 0.
  void begin() { tables_.assign(tables_.size(), {}); }
  // What is new in the numbering of a parser: for every piece, also one whose events are not kept.
  void learn(size_t parser, KinetoEvents& events);
  // The events themselves.
  void add(size_t parser, const KinetoEvents& events);
  // Expects about so many spans in all.
  void reserve(size_t spans);

 private:
  // From a parser's numbers to the timeline's; made when first used, so that what is learnt from
  // pieces that are not kept leaves no trace.
  struct Table {
    std::vector<std::string> texts;
    std::vector<StringId> ids;
    std::vector<KinetoEvents::Lane> lanes;
    std::vector<int32_t> lane_ids;
  };
  StringId id(Table& table, uint32_t number) {
    const StringId known = table.ids[number];
    return known != kUnknown ? known : learn_text(table, number);
  }
  StringId learn_text(Table& table, uint32_t number);
  int32_t lane(Table& table, int32_t number, KinetoCategory category);
  void add_collective(Table& table,
                      const KinetoEvents& events,
                      const KinetoEvents::Span& span,
                      int32_t lane_id,
                      size_t index);
  int32_t collective_of(Table& table,
                        const KinetoEvents::Arguments& arguments,
                        const std::string& pid);
  void note_group(const std::string& pid,
                  const Collective& collective,
                  StringId description,
                  const std::vector<int32_t>& ranks);
  const std::vector<int32_t>& ranks_of(StringId text);

  static constexpr StringId kUnknown = ~StringId{0};
  KinetoDraft& draft_;
  std::vector<Table> tables_;
  std::map<std::pair<std::string, std::string>, int32_t> lane_ids_;
  std::map<StringId, std::vector<int32_t>> ranks_;  // by the text that lists them
  // Seen in collectives of a process: place in draft.groups_seen.
  std::map<std::pair<std::string, StringId>, size_t> groups_;
};

}  // namespace vitrine
