// Times of operations and optimizer passes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "calibrate/calibrate.h"
#include "calibrate/op_grid.h"
#include "core/clock.h"
#include "core/parallel.h"
#include "ops/op_features.h"
#include "optim/optim.h"

namespace vitrine {
namespace {

constexpr int64_t kColdBytes = int64_t{16} << 20;

// Runs `timed(i)` over and over for a fixed time, so that ranks that measure together stay
// together; the median of what it returns.
double median_ns(bool quick, const std::function<int64_t(int)>& timed) {
  const int64_t budget = quick ? 6'000'000 : 8'000'000;
  const size_t least = quick ? 3 : 4;
  timed(0);  // warms caches and makes primitives
  std::vector<int64_t> times;
  const int64_t start = now_ns();
  while (times.size() < least || now_ns() - start < budget)
    times.push_back(timed(static_cast<int>(times.size())));
  std::nth_element(
      times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return static_cast<double>(std::max<int64_t>(1, times[times.size() / 2]));
}

// In a step an operation finds its operands where others left them, not all in the nearest cache:
// several sets of operands are used in turn.
void measure_case(const OpCase& op_case, DType dtype, bool quick, MeasuredOperations& into) {
  std::vector<std::unique_ptr<OpOperands>> sets;
  sets.push_back(std::make_unique<OpOperands>(op_case, dtype));
  const int64_t wanted =
      std::clamp<int64_t>(kColdBytes / std::max<int64_t>(1, sets[0]->bytes()), 1, 4);
  while (static_cast<int64_t>(sets.size()) < wanted)
    sets.push_back(std::make_unique<OpOperands>(op_case, dtype));
  const Backend& backend = cpu_backend();
  const auto set = [&](int i) -> OpOperands& {
    return *sets[static_cast<size_t>(i) % sets.size()];
  };
  const OpDef& op = find_op(op_case.op);
  for (const bool backward : {false, true}) {
    const double ns = median_ns(quick, [&](int i) {
      if (backward && static_cast<size_t>(i) % sets.size() == 0) {
        for (auto& each : sets) each->run(backend, false);  // backward may spend what it saved
      }
      const int64_t start = now_ns();
      set(i).run(backend, backward);
      return now_ns() - start;
    });
    into.rows.push_back({op.name,
                         backward,
                         op_features(op, op_case.attrs, sets[0]->types()),
                         op_work(sets[0]->cost(backward)),
                         ns});
  }
}

void measure_passes(DType dtype, bool quick, MeasuredOperations& into) {
  const size_t element = dtype_bytes(dtype);
  // The last is beyond caches.
  for (const int64_t count :
       {int64_t{4096}, int64_t{65536}, int64_t{1} << 20, int64_t{quick ? 4 : 16} << 20}) {
    const auto n = static_cast<size_t>(count);
    std::vector<float> master(n, 0.1F), first(n, 0.01F), second(n, 0.01F), gradient(n, 0.01F);
    std::vector<std::byte> narrow(n * element), copy(n * 4);
    const bool mixed = dtype != DType::kF32;
    OptimizerConfig config;
    const auto add = [&](const char* name, double work, const std::function<void()>& pass) {
      const double ns = median_ns(quick, [&](int) {
        const int64_t start = now_ns();
        pass();
        return now_ns() - start;
      });
      into.rows.push_back({name, false, {std::log2(static_cast<double>(count))}, work, ns});
    };
    const auto elements = static_cast<double>(count);
    add("adamw", elements, [&] {
      adamw_update(adamw_step(config, 1e-3, 10, 1, true),
                   master.data(),
                   first.data(),
                   second.data(),
                   gradient.data(),
                   DType::kF32,
                   mixed ? static_cast<void*>(narrow.data()) : master.data(),
                   dtype,
                   count);
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
  for (const OpCase& each : calibration_cases(quick)) {
    if (together) together->barrier();
    measure_case(each, dtype, quick, result);
  }
  if (together) together->barrier();
  measure_passes(dtype, quick, result);
  return result;
}

}  // namespace vitrine
