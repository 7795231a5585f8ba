// Strings of a runner, interned once so that recording a span costs no lookup.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "run/runner.h"

namespace vitrine {

struct Runner::Names {
  Names(Recorder* recorder, const Graph& graph) : recorder(recorder) {
    if (!recorder) return;
    wait = recorder->intern("wait for communication");
    data = recorder->intern("next batch");
    for (const GraphBlock& block : graph.blocks) {
      blocks.push_back(recorder->intern(block.name));
      for (size_t kind = 0; kind < kActionKinds; ++kind) {
        actions.push_back(recorder->intern(
            std::string(action_kind_name(static_cast<ActionKind>(kind))) + " " + block.name));
      }
    }
    for (const GraphBlock& block : graph.blocks) {
      for (const TapeNode& node : block.tape->nodes()) {
        operations.emplace(node.op->name, recorder->intern(node.op->name));
        backward_operations.emplace(node.op->name, recorder->intern(node.op->name + " backward"));
      }
    }
    norm = recorder->intern("norm");
  }
  StringId action(const Action& a) const {
    if (!recorder || a.block < 0) return norm;
    return actions[static_cast<size_t>(a.block) * kActionKinds + static_cast<size_t>(a.kind)];
  }
  // Groups are registered on a communicator's first use.
  int32_t group(const Communicator& comm, const std::vector<int>& ranks) {
    const std::lock_guard lock(mutex);
    const auto it = groups.find(comm.name());
    if (it != groups.end()) return it->second;
    return groups[comm.name()] =
               recorder->group(comm.name(), std::vector<int32_t>(ranks.begin(), ranks.end()));
  }
  int64_t next_sequence(const std::string& group_name) {
    const std::lock_guard lock(mutex);
    return sequences[group_name]++;
  }
  StringId intern(const std::string& text) {
    const std::lock_guard lock(mutex);
    const auto it = texts.find(text);
    if (it != texts.end()) return it->second;
    return texts[text] = recorder->intern(text);
  }

  Recorder* recorder;
  StringId wait = kNoString, data = kNoString, norm = kNoString;
  std::vector<StringId> blocks, actions;
  std::map<std::string, StringId> operations, backward_operations;

 private:
  std::mutex mutex;
  std::map<std::string, int32_t> groups;
  std::map<std::string, int64_t> sequences;
  std::map<std::string, StringId> texts;
};

}  // namespace vitrine
