// Worker threads over tickets; every batch is a pure function of its ticket.
#include "data/loader.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/philox.h"
#include "data/sampler.h"

namespace vitrine {

Batch::Batch(const std::vector<FieldSpec>& fields, int64_t micro_batch, MemoryLedger& ledger)
    : fields_(fields) {
  for (const FieldSpec& field : fields) {
    std::vector<int64_t> dims = field.shape.dims();
    dims.insert(dims.begin(), micro_batch);
    TensorView view{nullptr, Shape(dims), field.dtype};
    buffers_.emplace_back(ledger, MemoryCategory::kStaging, "batch", view.bytes());
    view.data = buffers_.back().data();
    views_.push_back(view);
  }
}

const TensorView& Batch::view(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == name) return views_[i];
    names.push_back(fields_[i].name);
  }
  throw ConfigError("the data has no field \"" + name + "\"; it has " + join(names, ", "));
}

BatchLoader::BatchLoader(const Dataset& dataset, const LoaderOptions& options, MemoryLedger& ledger)
    : dataset_(dataset), options_(options), ledger_(ledger) {
  const BatchLayout& layout = options.layout;
  if (layout.micro_batch < 1 || layout.accumulation < 1 || layout.world < 1 || layout.rank < 0 ||
      layout.rank >= layout.world) {
    throw ConfigError("data loader: micro-batch " + std::to_string(layout.micro_batch) +
                      ", accumulation " + std::to_string(layout.accumulation) + ", rank " +
                      std::to_string(layout.rank) + " of " + std::to_string(layout.world) +
                      "; expected at least 1, 1, and a rank in the world");
  }
  if (options.workers < 0 || options.prefetch < 1 || options.first_step < 0) {
    throw ConfigError("data loader: " + std::to_string(options.workers) + " workers, prefetch " +
                      std::to_string(options.prefetch) + ", first step " +
                      std::to_string(options.first_step) + "; expected at least 0, 1 and 0");
  }
  if (dataset.size() < 1) throw ConfigError("data loader: the dataset is empty");
  wanted_ = to_make_ = options.first_step * layout.accumulation;
  for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::shared_ptr<const Batch> BatchLoader::make(int64_t ticket) const {
  const BatchLayout& layout = options_.layout;
  const int64_t step = ticket / layout.accumulation, micro = ticket % layout.accumulation;
  auto batch = std::make_shared<Batch>(dataset_.fields(), layout.micro_batch, ledger_);
  std::vector<TensorView> rows(batch->views_.size());
  for (int64_t i = 0; i < layout.micro_batch; ++i) {
    const SamplePlace place =
        sample_place(dataset_.size(), options_.seed, layout.global_index(step, micro, i));
    for (size_t f = 0; f < rows.size(); ++f) {
      const FieldSpec& field = dataset_.fields()[f];
      rows[f] = {nullptr, field.shape, field.dtype};
      rows[f].data = batch->views_[f].as<char>() + static_cast<size_t>(i) * rows[f].bytes();
    }
    const Philox philox(options_.seed, stream_of("augmentation"));
    dataset_.fill(place.sample, philox.bits64(static_cast<uint64_t>(place.epoch)), rows);
    batch->samples_.push_back(place.sample);
  }
  return batch;
}

BatchLoader::Made BatchLoader::try_make(int64_t ticket) const {
  try {
    return {make(ticket), nullptr};
  } catch (...) {
    return {nullptr, std::current_exception()};
  }
}

void BatchLoader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return stop_ || to_make_ < wanted_ + options_.prefetch; });
    if (stop_) return;
    const int64_t ticket = to_make_++, restarts = restarts_;
    lock.unlock();
    Made made = try_make(ticket);
    lock.lock();
    // A restart meanwhile has made this batch pointless.
    if (restarts != restarts_) continue;
    ready_[ticket] = std::move(made);
    made_.notify_one();
  }
}

std::shared_ptr<const Batch> BatchLoader::next(int64_t step, int64_t micro) {
  VITRINE_ASSERT(step >= 0 && micro >= 0 && micro < options_.layout.accumulation);
  const int64_t ticket = step * options_.layout.accumulation + micro;
  const int64_t begin = now_ns();
  if (first_next_ns_ < 0) first_next_ns_ = begin;
  Made made;
  if (workers_.empty()) {
    made = try_make(ticket);
  } else {
    std::unique_lock lock(mutex_);
    if (ticket != wanted_) {
      ++restarts_;
      ready_.clear();
      wanted_ = to_make_ = ticket;
      work_.notify_all();
    }
    made_.wait(lock, [&] { return ready_.contains(ticket); });
    made = std::move(ready_.extract(ticket).mapped());
    wanted_ = ticket + 1;
    work_.notify_one();
  }
  wait_.wait_ns += now_ns() - begin;
  ++wait_.batches;
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

LoaderWait BatchLoader::wait() const {
  LoaderWait result = wait_;
  result.elapsed_ns = first_next_ns_ < 0 ? 0 : now_ns() - first_next_ns_;
  return result;
}

void BatchLoader::reset_wait() {
  wait_ = {};
  first_next_ns_ = -1;
}

int64_t BatchLoader::epoch_of(int64_t step) const {
  return step * options_.layout.global_batch() / dataset_.size();
}

}  // namespace vitrine
