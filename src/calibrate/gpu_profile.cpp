// The profile that a calibration of GPUs leaves.
#include <algorithm>

#include "calibrate/measure_gpus.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/json.h"
#include "machines/cluster.h"
#include "plan/fit_gpus.h"

namespace vitrine {
namespace {

Json efficiency(const FittedGpus& fit, const MeasuredGpus& gpus, const std::string& when) {
  Json json{{"era", "measured by vitrine calibrate"},
            {"power", 1.0},
            {"ceiling", fit.ceiling},
            {"fill", fit.fill},
            {"launch_ns", gpus.issue_ns},
            {"fitted_to", when}};
  for (const auto& [key, share] : {std::pair("narrow_ceiling", fit.narrow_ceiling),
                                   {"matmul", fit.matmul},
                                   {"memory", fit.memory},
                                   {"communication", fit.communication}}) {
    if (share > 0) json[key] = share;
  }
  return json;
}

// What differs in this engine from other software on the card.
Json own_stack(const FittedGpus& fit, Json stack) {
  stack["era"] = "vitrine, measured by vitrine calibrate";
  stack.erase("ceiling");  // a card's, not a stack's
  stack.erase("narrow_ceiling");
  stack["swiglu_in_products"] = fit.swiglu_in_products;
  if (fit.narrow_share > 0) stack["narrow_share"] = fit.narrow_share;
  if (fit.copies > 0) stack["communication"] = fit.copies;
  return stack;
}

}  // namespace

std::string gpu_profile_text(const MeasuredGpus& gpus, const MeasuredHost& host) {
  const FittedGpus fit = fit_gpus(gpus);
  const std::string when = "measured by vitrine calibrate, " + wall_time_text();
  const std::string machine = format("%d x %s", gpus.count, gpus.name.c_str());
  Json profile{{"name", fit.base.empty() ? gpus.name : fit.base}};
  Json sources = Json::array(
      {"efficiency: " + when + " on " + machine,
       "host: " + when + format(", %d processors (%s)", host.cpus, host.processor.c_str()),
       "disk: " + when});
  if (fit.base.empty()) {
    profile["card"] = {{"name", gpus.name},
                       {"memory_bytes", gpus.memory_bytes},
                       {"bf16_flops_per_s", fit.card.bf16_flops_per_s},
                       {"fp16_flops_per_s", fit.card.fp16_flops_per_s},
                       {"fp8_flops_per_s", fit.card.fp8_flops_per_s},
                       {"tf32_flops_per_s", fit.card.tf32_flops_per_s},
                       {"fp32_flops_per_s", fit.card.fp32_flops_per_s},
                       {"memory_bytes_per_s", fit.card.memory_bytes_per_s},
                       {"source", when + ": rates reached, not peaks"}};
  } else {
    profile["base"] = fit.base;
  }
  profile["multiprocessors"] = gpus.multiprocessors;
  profile["pcie_bytes_per_s"] = gpus.host_link_bytes_per_s();
  profile["cards_per_host_link"] = 1;  // all GPUs copied at the same time
  sources.push_back("pcie: " + when + ", host link of each GPU, pinned memory");
  // The GPUs that this process may see say nothing about a machine that is known, unless they are
  // more than it should have.
  if (fit.base.empty() || gpus.count > make_cluster(fit.base).gpus_per_node)
    profile["gpus_per_node"] = profile["island"] = gpus.count;
  if (fit.link_bytes_per_s > 0) {
    profile["link_bytes_per_s"] = fit.link_bytes_per_s;
    sources.push_back("links: " + when + ", collectives between the GPUs of this machine");
  }
  profile["host_memory_bytes"] = host.memory_bytes;
  profile["host_bytes_per_s"] = host.bytes_per_s;
  profile["disk_bytes_per_s"] = std::min(host.disk.write_bytes_per_s, host.disk.read_bytes_per_s);
  profile["efficiency"] = efficiency(fit, gpus, when);
  profile["stacks"] = Json::array({own_stack(fit, profile["efficiency"])});
  profile["sources"] = sources;
  profile["measured_gpus"] = measured_gpus_json(gpus);
  return profile.dump(1);
}

}  // namespace vitrine
