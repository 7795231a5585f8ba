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

constexpr int kRounds = 2;

// Runs `timed(i)` over and over for a fixed time, so that ranks that measure together stay
// together. The median: a step's operations are disturbed like these, and their times add up.
double typical_ns(bool quick, const std::function<int64_t(int)>& timed) {
  const int64_t budget = quick ? 3'000'000 : 5'000'000;
  constexpr size_t kLeast = 3;
  timed(0);  // warms caches and makes primitives
  std::vector<int64_t> times;
  const int64_t start = now_ns();
  while (times.size() < kLeast || now_ns() - start < budget)
    times.push_back(timed(static_cast<int>(times.size())));
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<double>(std::max<int64_t>(1, *middle));
}

void measure_case(
    const OpCase& op_case, DType dtype, bool quick, CacheFlush& flush, MeasuredOperations& into) {
  OpOperands operands(op_case, dtype);
  const Backend& backend = cpu_backend();
  const OpDef& op = find_op(op_case.op);
  for (const bool backward : {false, true}) {
    const double ns = typical_ns(quick, [&](int) {
      if (backward) operands.run(backend, false);  // backward may spend what it saved
      flush();
      const int64_t start = now_ns();
      operands.run(backend, backward);
      return now_ns() - start;
    });
    into.rows.push_back({op.name,
                         backward,
                         op_features(op, op_case.attrs, operands.types()),
                         op_work(operands.cost(backward)),
                         ns});
  }
}

void measure_passes(DType dtype, bool quick, CacheFlush& flush, MeasuredOperations& into) {
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
      const double ns = typical_ns(quick, [&](int) {
        flush();
        const int64_t start = now_ns();
        pass();
        return now_ns() - start;
      });
      into.rows.push_back({name, false, {std::log2(static_cast<double>(count))}, work, ns});
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
}

}  // namespace

MeasuredOperations measure_operations(DType dtype, bool quick, World* world) {
  std::shared_ptr<Communicator> together;
  if (world) {
    std::vector<int> all(static_cast<size_t>(world->size()));
    std::iota(all.begin(), all.end(), 0);
    together = world->group(all, std::string("operations.") + dtype_name(dtype));
  }
  MeasuredOperations result;
  result.threads = compute_threads();
  result.ranks = world ? world->size() : 1;
  result.dtype = dtype_name(dtype);
  CacheFlush flush;
  // Rounds lie seconds apart, so that a disturbance spoils one of them; the better one counts.
  for (int round = 0; round < kRounds; ++round) {
    MeasuredOperations again = result;
    again.rows.clear();
    for (const OpCase& each : calibration_cases(quick)) {
      if (together) together->barrier();
      measure_case(each, dtype, quick, flush, again);
    }
    if (together) together->barrier();
    measure_passes(dtype, quick, flush, again);
    if (round == 0) result.rows = again.rows;
    for (size_t i = 0; i < result.rows.size(); ++i)
      result.rows[i].ns = std::min(result.rows[i].ns, again.rows[i].ns);
  }
  return result;
}

}  // namespace vitrine
