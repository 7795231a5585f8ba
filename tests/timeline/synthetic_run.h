// Timelines of a made-up ZeRO-3 run: gathers ahead of compute, gradients reduced behind it, one
// slow rank.
#pragma once

#include <algorithm>
#include <string>

#include "timeline/sample_timeline.h"

namespace vitrine {

struct SyntheticRun {
  int32_t ranks = 4, steps = 4, blocks = 12, micro_batches = 2;
  int64_t block_elements = 7087872;
  int32_t slow_rank = 2;
};

namespace synthetic {

class RankMaker {
 public:
  RankMaker(const SyntheticRun& run, int32_t rank) : run_(run) {
    out_.rank = rank, out_.world_size = run.ranks, out_.source = "recorded";
    out_.wall_anchor_ns = 1767225600000000000;
    out_.info = {{"device", "cpu"}, {"backend", "gloo"}};
    for (const char* name : {"compute", "gather", "reduce", "copy-in"}) {
      out_.lanes.push_back({name, true, static_cast<int64_t>(out_.lanes.size())});
    }
    out_.lanes.push_back({"steps", false, 4});
    out_.lanes.push_back({"host", false, 5});
  }

  RankTimeline make() {
    for (int32_t step = 0; step < run_.steps; ++step) one_step(step);
    sort();
    return std::move(out_);
  }

 private:
  // Uniform in [0.9, 1.1), times 1.25 on the slow rank.
  int64_t jitter(int64_t ns, bool computing) {
    state_ =
        state_ * 6364136223846793005ull + 1442695040888963407ull + static_cast<uint64_t>(out_.rank);
    const double factor = 0.9 + 0.2 * static_cast<double>(state_ >> 40) / 16777216.0;
    return static_cast<int64_t>(static_cast<double>(ns) * factor *
                                (computing && out_.rank == run_.slow_rank ? 1.25 : 1.0));
  }

  int64_t collective(const char* name,
                     int32_t lane,
                     SpanKind kind,
                     int64_t ready,
                     int32_t step,
                     int32_t micro_batch,
                     const std::string& block) {
    int64_t& free = lane == 1 ? gather_free_ : reduce_free_;
    int64_t& sequence = lane == 1 ? gather_sequence_ : reduce_sequence_;
    Collective record;
    record.name = out_.strings.intern(name);
    record.group = out_.strings.intern("data");
    for (int32_t r = 0; r < run_.ranks; ++r) record.ranks.push_back(r);
    record.sequence = sequence++;
    const int64_t full = run_.block_elements, part = full / run_.ranks;
    record.in_elements = kind == SpanKind::kGather ? part : full;
    record.out_elements = kind == SpanKind::kGather ? full : part;
    record.sent_bytes = 2 * part * (run_.ranks - 1);
    record.dtype = out_.strings.intern("bf16");
    out_.collectives.push_back(record);
    const int64_t start = std::max(ready, free), duration = jitter(1900000, false);
    free = start + duration;
    add_span(out_,
             start,
             duration,
             kind,
             std::string(name) + " " + block,
             lane,
             step,
             micro_batch,
             block,
             0,
             static_cast<int32_t>(out_.collectives.size()) - 1);
    return free;
  }

  void compute(SpanKind kind,
               int64_t ready,
               int64_t duration,
               int32_t step,
               int32_t micro_batch,
               const std::string& block) {
    const int64_t start = std::max(time_, ready);
    duration = jitter(duration, true);
    add_span(out_,
             start,
             duration,
             kind,
             std::string(span_kind_name(kind)) + " " + block,
             0,
             step,
             micro_batch,
             block);
    time_ = start + duration;
  }

  void memory(int64_t activations) {
    const int64_t shard = run_.block_elements * run_.blocks / run_.ranks;
    out_.memory.push_back({time_,
                           {2 * shard,
                            4 * shard,
                            12 * shard,
                            activations * (24 << 20),
                            4 * run_.block_elements,
                            2 * run_.block_elements,
                            64 << 20,
                            8 << 20}});
  }

  void one_step(int32_t step) {
    const int64_t begin = time_;
    const int64_t data = jitter(step == 2 ? 9000000 : 800000, false);
    add_span(out_, time_ + 10000, data, SpanKind::kData, "next batch", 5, step);
    add_span(out_, time_ + 10000 + data, 300000, SpanKind::kCopy, "batch to device", 3, step);
    time_ += 10000 + data + 300000;
    gather_free_ = std::max(gather_free_, begin), reduce_free_ = std::max(reduce_free_, begin);
    for (int32_t micro = 0; micro < run_.micro_batches; ++micro) {
      for (int32_t b = 0; b < run_.blocks; ++b) {
        const std::string block = "body." + std::to_string(b);
        const int64_t ready = collective("all_gather",
                                         1,
                                         SpanKind::kGather,
                                         time_ - 3000000 < begin ? begin : time_ - 3000000,
                                         step,
                                         micro,
                                         block);
        compute(SpanKind::kForward, ready, 2400000, step, micro, block);
        memory(b + 1);
      }
      for (int32_t b = run_.blocks - 1; b >= 0; --b) {
        const std::string block = "body." + std::to_string(b);
        const int64_t ready =
            collective("all_gather", 1, SpanKind::kGather, time_ - 3000000, step, micro, block);
        compute(SpanKind::kBackward, ready, 4700000, step, micro, block);
        collective("reduce_scatter", 2, SpanKind::kReduce, time_, step, micro, block);
        memory(b);
      }
    }
    compute(SpanKind::kOptimizer, reduce_free_, 5000000, step, -1, "");
    memory(0);
    add_span(out_, begin, time_ - begin, SpanKind::kStep, "step", 4, step);
    out_.counters.push_back({time_, out_.strings.intern("loss"), 4.0 / (1 + step)});
  }

  void sort() {
    std::vector<size_t> order(out_.spans.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const Spans old = out_.spans;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return old.start_ns[a] != old.start_ns[b] ? old.start_ns[a] < old.start_ns[b]
                                                : old.duration_ns[a] > old.duration_ns[b];
    });
    for (size_t i = 0; i < order.size(); ++i) {
      const size_t from = order[i];
      Spans& to = out_.spans;
      to.start_ns[i] = old.start_ns[from], to.duration_ns[i] = old.duration_ns[from];
      to.name[i] = old.name[from], to.kind[i] = old.kind[from], to.lane[i] = old.lane[from];
      to.step[i] = old.step[from], to.micro_batch[i] = old.micro_batch[from];
      to.block[i] = old.block[from], to.collective[i] = old.collective[from];
      to.correlation[i] = old.correlation[from];
    }
  }

  const SyntheticRun run_;
  RankTimeline out_;
  uint64_t state_ = 12345;
  int64_t time_ = 5000000000, gather_free_ = 0, reduce_free_ = 0;
  int64_t gather_sequence_ = 0, reduce_sequence_ = 0;
};

}  // namespace synthetic

inline Timeline synthetic_run(const SyntheticRun& run = {}) {
  Timeline out;
  out.origin = "recorded";
  for (int32_t rank = 0; rank < run.ranks; ++rank) {
    out.ranks.push_back(synthetic::RankMaker(run, rank).make());
  }
  return out;
}

}  // namespace vitrine
