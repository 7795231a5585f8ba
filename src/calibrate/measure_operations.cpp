// Times of operations and optimizer passes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "calibrate/cache_flush.h"
#include "calibrate/calibrate.h"
#include "calibrate/op_grid.h"
#include "core/clock.h"
#include "core/parallel.h"
#include "ops/op_features.h"
#include "optim/optim.h"

namespace vitrine {
namespace {

double median(std::vector<int64_t> times) {
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  const auto upper = static_cast<double>(*middle);
  if (times.size() % 2 == 1) return upper;
  return (upper + static_cast<double>(*std::max_element(times.begin(), middle))) / 2;
}

// How calls are timed: each with operands in no cache, by all ranks at the same time, as in a step;
// what one of them does to clear its caches would slow the call of another.
class Stopwatch {
 public:
  Stopwatch(bool quick, Communicator* together) : calls_(quick ? 2 : 3), together_(together) {}

  // The median: a step's operations are disturbed like these, and their times add up. `prepare` is
  // not timed. A first call warms what calls keep.
  double typical_ns(const std::function<void()>& prepare, const std::function<void()>& call) {
    prepare();
    call();
    std::vector<int64_t> times;
    for (int i = 0; i < calls_; ++i) {
      prepare();
      flush_();
      if (together_) together_->barrier();
      const int64_t start = now_ns();
      call();
      times.push_back(now_ns() - start);
    }
    return std::max(1.0, median(std::move(times)));
  }

 private:
  const int calls_;
  Communicator* const together_;
  CacheFlush flush_;
};

std::vector<MeasuredRow> measure_case(const OpCase& op_case, DType dtype, Stopwatch& stopwatch) {
  OpOperands operands(op_case, dtype);
  const Backend& backend = cpu_backend();
  const OpDef& op = find_op(op_case.op);
  std::vector<MeasuredRow> rows;
  for (const bool backward : {false, true}) {
    const auto prepare = [&] {
      if (backward) operands.run(backend, false);  // backward may spend what it saved
    };
    const double ns = stopwatch.typical_ns(prepare, [&] { operands.run(backend, backward); });
    rows.push_back({op.name,
                    backward,
                    op_features(op, op_case.attrs, operands.types()),
                    op_work(operands.cost(backward)),
                    ns});
  }
  return rows;
}

std::vector<MeasuredRow> measure_passes(DType dtype, bool quick, Stopwatch& stopwatch) {
  std::vector<MeasuredRow> rows;
  const size_t element = dtype_bytes(dtype);
  // The last is beyond caches.
  for (const int64_t count :
       {int64_t{4096}, int64_t{65536}, int64_t{1} << 20, int64_t{quick ? 4 : 16} << 20}) {
    const auto n = static_cast<size_t>(count);
    std::vector<float> master(n, 0.1F), first(n, 0.01F), second(n, 0.01F), gradient(n, 0.01F);
    std::vector<std::byte> narrow(n * element), copy(n * 4);
    const bool mixed = dtype != DType::kF32;
    OptimizerConfig config;
    UpdateArrays arrays;
    arrays.master = master.data();
    arrays.exp_avg = first.data();
    arrays.exp_avg_sq = second.data();
    arrays.gradients = gradient.data();
    arrays.parameters = mixed ? static_cast<void*>(narrow.data()) : master.data();
    arrays.parameter_dtype = dtype;
    const auto add = [&](const char* name, double work, const std::function<void()>& pass) {
      const double ns = stopwatch.typical_ns([] {}, pass);
      rows.push_back({name, false, {std::log2(static_cast<double>(count))}, work, ns});
    };
    const auto elements = static_cast<double>(count);
    add("adamw", elements, [&] {
      adamw_update(adamw_step(config, 1e-3, 10, 1, true), arrays, {0, count, true});
    });
    add("squares", elements, [&] {
      ExactSum sum;
      add_squares(gradient.data(), DType::kF32, 0, count, sum);
    });
    add("copy", elements * 4, [&] { std::memcpy(copy.data(), gradient.data(), n * 4); });
  }
  return rows;
}

}  // namespace

OperationTimes::OperationTimes(DType dtype, bool quick, World* world)
    : dtype_(dtype), quick_(quick) {
  if (world) {
    std::vector<int> all(static_cast<size_t>(world->size()));
    std::iota(all.begin(), all.end(), 0);
    together_ = world->group(all, std::string("operations.") + dtype_name(dtype));
  }
  result_.threads = compute_threads();
  result_.ranks = world ? world->size() : 1;
  result_.dtype = dtype_name(dtype);
}

void OperationTimes::round() {
  Stopwatch stopwatch(quick_, together_.get());
  std::vector<MeasuredRow> rows;
  const auto add = [&](std::vector<MeasuredRow> more) {
    rows.insert(rows.end(), more.begin(), more.end());
  };
  for (const OpCase& each : calibration_cases(quick_)) add(measure_case(each, dtype_, stopwatch));
  add(measure_passes(dtype_, quick_, stopwatch));
  times_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) times_[i].push_back(rows[i].ns);
  if (result_.rows.empty()) result_.rows = std::move(rows);
}

// The mean of the better half and the middle: of three the slowest does not count.
MeasuredOperations OperationTimes::result() const {
  MeasuredOperations out = result_;
  for (size_t i = 0; i < times_.size(); ++i) {
    std::vector<double> times = times_[i];
    std::sort(times.begin(), times.end());
    times.resize((times.size() + 2) / 2);
    out.rows[i].ns =
        std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  }
  return out;
}

}  // namespace vitrine
