// Micro-batches made ahead by worker threads, in an order that follows from the step alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "data/dataset.h"

namespace vitrine {

// How a global batch is cut. Sample i of micro-batch `micro` of `rank` has the place
//   ((micro * world) + rank) * micro_batch + i
// in the global batch of micro_batch * accumulation * world samples, so any (world, accumulation)
// of equal product reads the same global batch.
struct BatchLayout {
  int64_t micro_batch = 1, accumulation = 1;
  int64_t rank = 0, world = 1;  // in the data-parallel group

  int64_t global_batch() const { return micro_batch * accumulation * world; }
  // Index over the whole run, to be given to sample_place().
  int64_t global_index(int64_t step, int64_t micro, int64_t i) const {
    return step * global_batch() + (micro * world + rank) * micro_batch + i;
  }
};

// One micro-batch: a view [micro_batch, sample shape...] for each field.
class Batch {
 public:
  Batch(const std::vector<FieldSpec>& fields, int64_t micro_batch, MemoryLedger& ledger);

  // Throws ConfigError naming the fields there are.
  const TensorView& view(const std::string& name) const;
  const std::vector<FieldSpec>& fields() const { return fields_; }
  const std::vector<TensorView>& views() const { return views_; }
  // Dataset index of each row.
  const std::vector<int64_t>& samples() const { return samples_; }

 private:
  friend class BatchLoader;
  const std::vector<FieldSpec>& fields_;  // the dataset's
  std::vector<Buffer> buffers_;           // ledger category kStaging, holder "batch"
  std::vector<TensorView> views_;
  std::vector<int64_t> samples_;
};

struct LoaderOptions {
  uint64_t seed = 0;  // of the sample order
  BatchLayout layout = {};
  int workers = 1;         // 0: batches are made by the caller of next()
  int prefetch = 4;        // micro-batches made or being made ahead
  int64_t first_step = 0;  // where workers begin
};

// How much a run waits for data. A share near zero: the data is not what is slow.
struct LoaderWait {
  int64_t batches = 0;
  int64_t wait_ns = 0;     // spent in next()
  int64_t elapsed_ns = 0;  // from the first next() since the reset until now
  double share() const {
    return elapsed_ns > 0 ? static_cast<double>(wait_ns) / static_cast<double>(elapsed_ns) : 0;
  }
};

// The dataset and the ledger must outlive the loader and its batches. next() and the statistics are
// for one thread.
class BatchLoader {
 public:
  // Throws ConfigError for a layout that makes no sense.
  BatchLoader(const Dataset& dataset, const LoaderOptions& options, MemoryLedger& ledger);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The micro-batch (step, micro) of this rank; it lives as long as the caller holds it. Asked for
  // in order it has usually been made already; any other place works and restarts the workers
  // there, so a resume needs no state but the step. An error met while making the batch is thrown
  // here.
  std::shared_ptr<const Batch> next(int64_t step, int64_t micro);

  LoaderWait wait() const;
  void reset_wait();
  int64_t epoch_of(int64_t step) const;

 private:
  struct Made {
    std::shared_ptr<const Batch> batch;
    std::exception_ptr error;
  };
  std::shared_ptr<const Batch> make(int64_t ticket) const;
  Made try_make(int64_t ticket) const;
  void work();

  const Dataset& dataset_;
  const LoaderOptions options_;
  MemoryLedger& ledger_;
  LoaderWait wait_;
  int64_t first_next_ns_ = -1;

  // Tickets number the micro-batches of this rank: step * accumulation + micro.
  std::mutex mutex_;
  std::condition_variable work_, made_;
  int64_t wanted_;   // the next that next() is expected to ask for
  int64_t to_make_;  // the next that a worker takes
  int64_t restarts_ = 0;
  bool stop_ = false;
  std::map<int64_t, Made> ready_;
  std::vector<std::thread> workers_;
};

}  // namespace vitrine
