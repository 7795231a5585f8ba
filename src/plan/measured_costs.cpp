// Look-up and interpolation of measured times.
#include "plan/measured_costs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/format.h"
#include "ops/op_features.h"

namespace vitrine {

MeasuredCosts::MeasuredCosts(const MeasuredMachine& machine, DType compute, int ranks)
    : machine_(machine), ranks_(ranks), threads_(std::max(1, machine.cpus / std::max(1, ranks))) {
  std::string dtype = dtype_name(compute);
  const auto measured = [&] {
    return std::any_of(machine.operations.begin(), machine.operations.end(), [&](const auto& each) {
      return each.dtype == dtype && !each.rows.empty();
    });
  };
  if (!measured()) {
    notes_.insert("operations in " + dtype + " were not measured: those in f32 stand for them");
    dtype = "f32";
    if (!measured()) throw ConfigError("the profile has no measured operations in f32");
  }
  const auto closer = [&](const MeasuredOperations& a, const MeasuredOperations* b) {
    if (!b) return true;
    if (a.threads != b->threads)
      return std::abs(a.threads - threads_) < std::abs(b->threads - threads_);
    return std::abs(a.ranks - ranks_) < std::abs(b->ranks - ranks_);
  };
  for (const MeasuredOperations& each : machine.operations) {
    if (each.dtype != dtype || each.rows.empty()) continue;
    if (each.threads <= threads_ && closer(each, fewer_)) fewer_ = &each;
    if (each.threads >= threads_ && closer(each, more_)) more_ = &each;
  }
  if (!fewer_) fewer_ = more_;
  if (!more_) more_ = fewer_;
}

// ns a unit of work is the geometric mean of the measured ones, weighted by distance^-4 (distance
// in powers of two, so a factor of two away counts 1, four away a sixteenth).
double MeasuredCosts::row_ns(const MeasuredOperations& table,
                             std::string_view op,
                             bool backward,
                             const std::vector<double>& features,
                             double work,
                             bool product) const {
  double weights = 0, sum = 0;
  for (const MeasuredRow& row : table.rows) {
    if (row.op != op || row.backward != backward || row.features.size() != features.size())
      continue;
    double distance = 0;
    for (size_t i = 0; i < features.size(); ++i)
      distance += (row.features[i] - features[i]) * (row.features[i] - features[i]);
    const double weight = 1 / ((distance + 1e-3) * (distance + 1e-3));
    weights += weight;
    sum += weight * std::log(row.ns / row.work);
  }
  if (weights > 0) return work * std::exp(sum / weights);
  notes_.insert(std::string(op) + (backward ? " backward" : "") +
                " was not measured: it costs as operations alike do");
  std::vector<double> rates;
  for (const MeasuredRow& row : table.rows) {
    const bool alike = product == (row.op == "linear");
    if (alike && row.features.size() > 1 && row.backward == backward)
      rates.push_back(row.ns / row.work);
  }
  if (rates.empty())
    throw ConfigError("the profile has no measured operation that is like " + std::string(op));
  const auto middle = rates.begin() + static_cast<ptrdiff_t>(rates.size() / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  return work * *middle;
}

double MeasuredCosts::between_tables(std::string_view op,
                                     bool backward,
                                     const std::vector<double>& features,
                                     double work,
                                     bool product) const {
  const double few = row_ns(*fewer_, op, backward, features, work, product);
  if (fewer_->threads >= more_->threads) return few;
  const double many = row_ns(*more_, op, backward, features, work, product);
  const double part = std::log(static_cast<double>(threads_) / fewer_->threads) /
                      std::log(static_cast<double>(more_->threads) / fewer_->threads);
  return few * std::pow(many / few, std::clamp(part, 0.0, 1.0));
}

double MeasuredCosts::operation_ns(const TapeNode& node,
                                   const std::vector<TensorType>& in,
                                   bool backward) const {
  const Cost cost = (backward ? node.op->backward_cost : node.op->forward_cost)(node.attrs, in);
  return between_tables(
      node.op->name, backward, op_features(*node.op, node.attrs, in), op_work(cost), cost.matmul);
}

double MeasuredCosts::pass_ns(std::string_view pass, double amount) const {
  if (amount <= 0) return 0;
  const double elements = pass == "copy" ? amount / 4 : amount;
  return between_tables(pass, false, {std::log2(std::max(1.0, elements))}, amount, false);
}

MeasuredCosts::Transfer MeasuredCosts::collective(std::string_view kind,
                                                  int ranks,
                                                  double bytes) const {
  // By size, of the measured number of ranks that is nearest.
  std::map<double, const MeasuredCollective*> sizes;
  int measured = 0;
  for (const MeasuredCollective& each : machine_.collectives) {
    if (each.kind == kind &&
        (measured == 0 || std::abs(each.ranks - ranks) < std::abs(measured - ranks)))
      measured = each.ranks;
  }
  for (const MeasuredCollective& each : machine_.collectives) {
    if (each.kind == kind && each.ranks == measured) sizes[each.bytes] = &each;
  }
  if (sizes.empty())
    throw ConfigError("the profile has no measured " + std::string(kind) +
                      ": calibrate on a machine that can start 2 ranks");
  const double more = kind == "send" ? 1 : static_cast<double>(ranks - 1) / (measured - 1);
  const auto above = sizes.lower_bound(bytes);
  if (above == sizes.begin()) return {above->second->ns * more, above->second->cores};
  const MeasuredCollective& low = *std::prev(above)->second;
  if (above == sizes.end()) return {low.ns * bytes / low.bytes * more, low.cores};
  const MeasuredCollective& high = *above->second;
  const double part = (bytes - low.bytes) / (high.bytes - low.bytes);
  return {(low.ns + (high.ns - low.ns) * part) * more, low.cores + (high.cores - low.cores) * part};
}

}  // namespace vitrine
