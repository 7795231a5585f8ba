// Timelines made by hand, in microseconds: two streams, the main thread and autograd's.
#pragma once

#include <string>

#include "timeline/sample_timeline.h"

namespace vitrine {

constexpr int64_t kUs = 1000;

class HandTrace {
 public:
  static constexpr int32_t kStream = 0, kOtherStream = 1, kMain = 2, kAutograd = 3, kProfiler = 4;

  HandTrace() {
    timeline.lanes = {{"stream 7", true, 7, 0},
                      {"stream 9", true, 9, 0},
                      {"thread 1", false, 1},
                      {"thread 2", false, 2},
                      {"overhead", false, 0}};
  }

  void host(
      SpanKind kind, const std::string& name, int64_t begin, int64_t end, int32_t lane = kMain) {
    add_span(timeline, begin * kUs, (end - begin) * kUs, kind, name, lane, step_at(begin));
  }
  // A call that launches what bears the number returned.
  int64_t call(const std::string& name, int64_t begin, int64_t end, int32_t lane = kMain) {
    const int64_t correlation = ++last_;
    add_span(timeline,
             begin * kUs,
             (end - begin) * kUs,
             SpanKind::kRuntime,
             name,
             lane,
             step_at(begin),
             -1,
             "",
             correlation);
    launched_in_ = step_at(begin);
    return correlation;
  }
  void device(const std::string& name,
              int64_t begin,
              int64_t end,
              int64_t correlation,
              int32_t lane = kStream,
              SpanKind kind = SpanKind::kKernel,
              int32_t collective = -1) {
    add_span(timeline,
             begin * kUs,
             (end - begin) * kUs,
             kind,
             name,
             lane,
             launched_in_,
             -1,
             "",
             correlation,
             collective);
  }
  // A kernel and its launch, a call of 5 us.
  void kernel(const std::string& name,
              int64_t begin,
              int64_t end,
              int64_t launch,
              int32_t stream = kStream,
              int32_t thread = kMain) {
    device(name, begin, end, call("cudaLaunchKernel", launch, launch + 5, thread), stream);
  }
  void step(int32_t number, int64_t begin, int64_t end) {
    steps_.push_back({begin, end, number});
    host(SpanKind::kStep, "ProfilerStep#" + std::to_string(number), begin, end);
  }

  RankTimeline timeline;

 private:
  struct Step {
    int64_t begin, end;
    int32_t number;
  };
  int32_t step_at(int64_t time) const {
    for (const Step& step : steps_) {
      if (step.begin <= time && time < step.end) return step.number;
    }
    return -1;
  }
  std::vector<Step> steps_;
  int64_t last_ = 0;
  int32_t launched_in_ = -1;
};

}  // namespace vitrine
