// DeepSpeed's estimators.
#include "plan/deepspeed_estimate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

double whole(double bytes) { return std::trunc(bytes); }

void check(const DeepSpeedJob& job) {
  const std::pair<const char*, double> sizes[] = {
      {"parameters", job.parameters},
      {"gpus_per_node", static_cast<double>(job.gpus_per_node)},
      {"nodes", static_cast<double>(job.nodes)}};
  for (const auto& [name, value] : sizes) {
    if (std::isfinite(value) && value >= 1) continue;
    throw ConfigError(format("DeepSpeed's estimator: %s is at least 1, got %g", name, value));
  }
  if (!(job.largest_layer >= 0 && job.largest_layer <= job.parameters)) {
    throw ConfigError(
        format("DeepSpeed's estimator: largest_layer is from 0 to the parameters (%.0f), got %g",
               job.parameters,
               job.largest_layer));
  }
  if (!(job.buffer_factor > 0)) {
    throw ConfigError(
        format("DeepSpeed's estimator: buffer_factor is over 0, got %g", job.buffer_factor));
  }
}

std::string head(const DeepSpeedJob& job) {
  return format(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with %d %s, %d %s per node.\n"
      "SW: Model with %.0fM total params",
      job.nodes,
      job.nodes > 1 ? "nodes" : "node",
      job.gpus_per_node,
      job.gpus_per_node > 1 ? "GPUs" : "GPU",
      std::trunc(job.parameters / 1e6));
}

std::string row(const DeepSpeedEstimate& estimate) {
  constexpr double kGiB = 1 << 30;
  return format(" %7.2fGB | %6.2fGB | ", estimate.cpu_bytes / kGiB, estimate.gpu_bytes / kGiB);
}

}  // namespace

DeepSpeedEstimate deepspeed_zero2(const DeepSpeedJob& job, bool offload_optimizer) {
  check(job);
  const double p = job.parameters, gpus = job.gpus_per_node, all = gpus * job.nodes;
  if (offload_optimizer) {
    return {whole(p * std::max(4 * all, 16.0) * job.buffer_factor), whole(2 * p)};
  }
  return {whole(4 * p * gpus * job.buffer_factor), whole(2 * p + whole(18 * p / all))};
}

DeepSpeedEstimate deepspeed_zero3(const DeepSpeedJob& job,
                                  bool offload_optimizer,
                                  bool offload_parameters,
                                  bool zero_init) {
  check(job);
  if (offload_parameters && !offload_optimizer) {
    throw ConfigError(
        "DeepSpeed's estimator: parameters are offloaded together with the optimizer only");
  }
  const double p = job.parameters, gpus = job.gpus_per_node, all = gpus * job.nodes;
  const double gathered = 4 * job.largest_layer, share = 1.0 / job.nodes;
  // Without zero.Init every process of a node builds the whole model in fp32 first.
  const double built = 4 * gpus;
  if (!offload_optimizer) {
    const double cpu = zero_init ? 4 * job.largest_layer * gpus : 4 * p * gpus;
    return {whole(cpu * job.buffer_factor), whole(gathered + whole(18 * p / all))};
  }
  const double states = (offload_parameters ? 18 : 16) * share;
  const double cpu = p * (zero_init ? states : std::max(built, states));
  return {whole(cpu * job.buffer_factor),
          whole(gathered + (offload_parameters ? 0 : whole(2 * p / all)))};
}

std::string deepspeed_estimate_table(const DeepSpeedJob& job, int stage) {
  check(job);
  constexpr char kColumns[] = "  per CPU  |  per GPU |   Options\n";
  const auto device = [](bool offloaded) { return offloaded ? "cpu " : "none"; };
  if (stage == 2) {
    std::string text = head(job) + ".\n" + kColumns;
    for (const bool offload : {true, false}) {
      text += row(deepspeed_zero2(job, offload)) + "offload_optimizer=" + device(offload) + "\n";
    }
    return text;
  }
  if (stage != 3) {
    throw ConfigError(
        format("DeepSpeed's estimators are of ZeRO stages 2 and 3, got %d; nearest: %d",
               stage,
               stage < 2 ? 2 : 3));
  }
  std::string text =
      head(job) + format(", %.0fM largest layer params.\n", std::trunc(job.largest_layer / 1e6)) +
      kColumns;
  const std::pair<bool, bool> offloads[] = {{true, true}, {true, false}, {false, false}};
  for (const auto& [optimizer, parameters] : offloads) {
    for (const bool init : {true, false}) {
      text += row(deepspeed_zero3(job, optimizer, parameters, init)) +
              "offload_param=" + device(parameters) + ", offload_optimizer=" + device(optimizer) +
              ", zero_init=" + (init ? "1" : "0") + "\n";
    }
  }
  return text;
}

}  // namespace vitrine
