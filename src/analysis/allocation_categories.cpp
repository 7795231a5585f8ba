// Phases of the history, lifetimes of blocks, and the rules that join them.
#include "analysis/allocation_categories.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <unordered_map>

#include "core/contains.h"

namespace vitrine {

namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// What a stack or the open annotations say.
struct Hints {
  bool optimizer = false, backward = false, forward = false, recompute = false, gather = false,
       reduce = false, construct = false, data = false, any = false;
};

Hints hints_of_stack(const AllocatorSnapshot& snapshot, const std::vector<uint32_t>& stack) {
  Hints hints;
  hints.any = !stack.empty();
  for (const uint32_t index : stack) {
    const AllocatorFrame& frame = snapshot.frames[index];
    const std::string& function = snapshot.strings[frame.function];
    const std::string& file = snapshot.strings[frame.file];
    const bool torch = contains(file, "torch/");
    hints.optimizer |= contains(file, "/optim/") && !contains(function, "zero_grad");
    hints.backward |= function == "_engine_run_backward" || (torch && function == "backward") ||
                      contains(function, "post_backward") || contains(function, "pre_backward");
    hints.forward |= function == "forward" || (torch && function == "_call_impl");
    hints.recompute |=
        contains(file, "utils/checkpoint") &&
        (contains(function, "recompute") || contains(function, "unpack") || function == "backward");
    hints.gather |= contains(function, "all_gather") || contains(function, "allgather");
    hints.reduce |= contains(function, "reduce_scatter") || contains(function, "all_reduce") ||
                    contains(function, "foreach_reduce") || contains(function, "reduce_bucket");
    hints.construct |= function == "__init__" || contains(function, "_init_sharded_param") ||
                       function == "_apply" || function == "reset_parameters" ||
                       function == "load_state_dict";
    hints.data |= contains(file, "utils/data/");
  }
  // A stack whose outermost frame is PyTorch's was entered from an engine thread.
  hints.backward |=
      hints.any && contains(snapshot.strings[snapshot.frames[stack.back()].file], "torch/");
  return hints;
}

Hints hints_of_annotation(const std::string& name) {
  Hints hints;
  const std::string text = lower(name);
  hints.any = true;
  hints.optimizer = text.starts_with("optimizer.step");
  hints.backward = contains(text, "backward");
  hints.forward = !hints.backward && contains(text, "forward");
  hints.gather = contains(text, "all_gather");
  hints.reduce = contains(text, "reduce_scatter") || contains(text, "all_reduce") ||
                 contains(text, "allreduce") || contains(text, "post_backward_reduce");
  hints.data = text == "data" || contains(text, "dataloader");
  return hints;
}

// The annotations that are open at each event, counted by what they say.
class OpenAnnotations {
 public:
  OpenAnnotations(const AllocatorSnapshot& snapshot, int32_t device)
      : snapshot_(snapshot), device_(device) {}

  void advance(int64_t time_ns) {
    for (; next_ < snapshot_.annotations.size() && snapshot_.annotations[next_].time_ns <= time_ns;
         ++next_) {
      const AllocatorAnnotation& annotation = snapshot_.annotations[next_];
      if (annotation.device != device_) continue;
      int64_t& depth = depth_[annotation.name];
      // An END whose START lies before the recording changes nothing.
      if (!annotation.start && depth == 0) continue;
      depth += annotation.start ? 1 : -1;
      changed_ = true;
    }
    if (!changed_) return;
    changed_ = false;
    open_ = {};
    for (const auto& [name, depth] : depth_) {
      if (depth <= 0) continue;
      const auto [known, is_new] = hints_.try_emplace(name);
      if (is_new) known->second = hints_of_annotation(snapshot_.strings[name]);
      const Hints& hints = known->second;
      open_.optimizer |= hints.optimizer, open_.backward |= hints.backward;
      open_.forward |= hints.forward, open_.gather |= hints.gather;
      open_.reduce |= hints.reduce, open_.data |= hints.data;
    }
  }
  const Hints& open() const { return open_; }

 private:
  const AllocatorSnapshot& snapshot_;
  const int32_t device_;
  size_t next_ = 0;
  bool changed_ = false;
  std::map<StringId, int64_t> depth_;
  std::unordered_map<StringId, Hints> hints_;
  Hints open_;
};

StepPhase phase_of(const Hints& open, const Hints& stack, bool no_stack_is_engine) {
  for (const Hints* hints : {&open, &stack}) {
    if (hints->optimizer) return StepPhase::kOptimizer;
    if (hints->backward || hints->recompute) return StepPhase::kBackward;
    if (hints->forward) return StepPhase::kForward;
    if (hints->data) return StepPhase::kData;
  }
  // The autograd engine's threads run no Python.
  if (no_stack_is_engine && !stack.any) return StepPhase::kBackward;
  return StepPhase::kUnknown;
}

class Categoriser {
 public:
  Categoriser(const AllocatorSnapshot& snapshot, size_t device)
      : snapshot_(snapshot),
        events_(snapshot.history[device]),
        device_(static_cast<int32_t>(device)) {}

  AllocationHistory run() {
    read_events();
    find_run_ends();
    for (size_t i = 0; i < out_.allocations.size(); ++i) {
      out_.allocations[i].category = category(out_.allocations[i], hints_[i]);
    }
    return std::move(out_);
  }

 private:
  using Action = AllocatorEvent::Action;

  void read_events() {
    std::vector<Hints> of_stack(snapshot_.stacks.size());
    for (size_t i = 0; i < of_stack.size(); ++i) {
      of_stack[i] = hints_of_stack(snapshot_, snapshot_.stacks[i]);
    }
    const bool stacks_recorded = std::any_of(
        events_.begin(), events_.end(), [](const AllocatorEvent& e) { return e.stack >= 0; });
    OpenAnnotations annotations(snapshot_, device_);
    std::unordered_map<uint64_t, size_t> live;  // address -> allocation
    StepPhase phase = StepPhase::kUnknown;
    bool forward_seen = false;
    out_.phases.reserve(events_.size());
    for (size_t i = 0; i < events_.size(); ++i) {
      const AllocatorEvent& event = events_[i];
      annotations.advance(event.time_ns);
      const Hints stack = event.stack >= 0 ? of_stack[static_cast<size_t>(event.stack)] : Hints{};
      if (event.action == Action::kAlloc) {
        const StepPhase own = phase_of(annotations.open(), stack, stacks_recorded && forward_seen);
        forward_seen |= own == StepPhase::kForward;
        if (own != StepPhase::kUnknown) phase = own;
        live[event.address] = out_.allocations.size();
        out_.allocations.push_back({i, events_.size(), event.size_bytes, event.stack, -1});
        Hints both = stack;
        both.gather |= annotations.open().gather;
        both.reduce |= annotations.open().reduce;
        hints_.push_back(both);
        own_phase_.push_back(own);
      } else if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) {
        // Frees say nothing of the phase by their frames: garbage is collected anywhere.
        const StepPhase own = phase_of(annotations.open(), Hints{}, false);
        if (own != StepPhase::kUnknown) phase = own;
        const auto found = live.find(event.address);
        if (found != live.end()) {
          out_.allocations[found->second].end = i;
          live.erase(found);
        }
      }
      out_.phases.push_back(phase);
      out_.has_backward |= phase == StepPhase::kBackward;
      out_.has_optimizer |= phase == StepPhase::kOptimizer;
    }
  }

  // For each event: where the run of its phase ends, and where the next optimizer step begins.
  void find_run_ends() {
    const size_t count = events_.size();
    run_end_.assign(count, count);
    next_optimizer_.assign(count, count);
    size_t optimizer = count;
    for (size_t i = count; i-- > 0;) {
      if (i + 1 < count) {
        run_end_[i] = out_.phases[i] == out_.phases[i + 1] ? run_end_[i + 1] : i + 1;
      }
      next_optimizer_[i] = optimizer;
      if (out_.phases[i] == StepPhase::kOptimizer) optimizer = i;
    }
  }

  int8_t category(const Allocation& a, const Hints& hints) const {
    const size_t index = static_cast<size_t>(&a - out_.allocations.data());
    const StepPhase phase = own_phase_[index];
    // A free that is the first event of the next phase comes after this one.
    const bool outlives_phase = run_end_[a.begin] < events_.size() && a.end >= run_end_[a.begin];
    const auto is = [](MemoryCategory category) { return static_cast<int8_t>(category); };
    if (hints.gather) return is(MemoryCategory::kGathered);
    if (hints.reduce) {
      return is(outlives_phase ? MemoryCategory::kGradients : MemoryCategory::kCommunication);
    }
    switch (phase) {
      case StepPhase::kOptimizer: {
        // What the last step of the history leaves behind is its state too.
        const bool stays = outlives_phase || a.end == events_.size();
        return is(stays ? MemoryCategory::kOptimizer : MemoryCategory::kWorkspace);
      }
      case StepPhase::kBackward:
        if (hints.recompute) return is(MemoryCategory::kActivations);
        return is(outlives_phase ? MemoryCategory::kGradients : MemoryCategory::kWorkspace);
      case StepPhase::kForward:
        if (a.end < events_.size()) {
          return is(outlives_phase ? MemoryCategory::kActivations : MemoryCategory::kWorkspace);
        }
        // Never freed: a step that the history cuts, or something kept over steps.
        return next_optimizer_[a.begin] == events_.size() ? is(MemoryCategory::kActivations)
                                                          : int8_t{-1};
      case StepPhase::kData:
        return is(MemoryCategory::kStaging);
      case StepPhase::kUnknown:
        break;
    }
    if (hints.construct) return is(MemoryCategory::kParameters);
    const bool before_any = out_.phases[a.begin] == StepPhase::kUnknown;
    if (before_any && a.end > next_optimizer_[a.begin]) return is(MemoryCategory::kParameters);
    return -1;
  }

  const AllocatorSnapshot& snapshot_;
  const std::vector<AllocatorEvent>& events_;
  const int32_t device_;
  AllocationHistory out_;
  std::vector<Hints> hints_;          // by allocation
  std::vector<StepPhase> own_phase_;  // by allocation
  std::vector<size_t> run_end_, next_optimizer_;
};

}  // namespace

AllocationHistory categorise(const AllocatorSnapshot& snapshot, size_t device) {
  return Categoriser(snapshot, device).run();
}

}  // namespace vitrine
