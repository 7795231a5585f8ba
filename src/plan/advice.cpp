// Limits and neighbours.
#include "plan/advice.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

double peak_of(const Prediction& p) {
  return p.memory[static_cast<size_t>(p.fullest_stage)].total();
}

// Knobs, each turned one notch.
std::vector<std::pair<std::string, ClusterStrategy>> neighbours(const Planner& planner,
                                                                const ClusterStrategy& s) {
  std::vector<std::pair<std::string, ClusterStrategy>> out;
  const auto add = [&](std::string what, auto&& turn) {
    ClusterStrategy changed = s;
    turn(changed);
    out.emplace_back(std::move(what), changed);
  };
  for (const Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (r == s.recompute) continue;
    add(r == Recompute::kNone ? "no recomputation" : format("%s recomputation", recompute_name(r)),
        [&](ClusterStrategy& c) { c.recompute = r; });
  }
  for (const int64_t b : {s.micro_batch * 2, s.micro_batch / 2}) {
    if (b < 1) continue;
    add(format("micro-batch %lld", static_cast<long long>(b)),
        [&](ClusterStrategy& c) { c.micro_batch = b; });
  }
  for (const int stage : {s.zero_stage - 1, s.zero_stage + 1}) {
    if (stage < 0 || stage > 3) continue;
    add(format("ZeRO-%d", stage), [&](ClusterStrategy& c) {
      c.zero_stage = stage;
      c.reduce_each_micro_batch = stage >= 2;
      if (stage < 3) c.shard_group = 0;
    });
  }
  const int node = planner.cluster().gpus_per_node;
  if (s.zero_stage == 3 && s.shard_group == 0 && s.mesh.data * s.mesh.tensor > node) {
    add("ZeRO-3 inside each node, replicas between nodes",
        [&](ClusterStrategy& c) { c.shard_group = node / s.mesh.tensor; });
  }
  // Degrees that take ranks from data or give them back.
  const auto trade = [&](const char* name, int Mesh::*degree) {
    const int now = s.mesh.*degree;
    if (s.mesh.data % 2 == 0) {
      add(format("%s %d, data %d", name, now * 2, s.mesh.data / 2), [&](ClusterStrategy& c) {
        c.mesh.*degree = now * 2;
        c.mesh.data /= 2;
        if (c.mesh.tensor > 1) c.sequence_parallel = true;
      });
    }
    if (now % 2 == 0) {
      add(format("%s %d, data %d", name, now / 2, s.mesh.data * 2), [&](ClusterStrategy& c) {
        c.mesh.*degree = now / 2;
        c.mesh.data *= 2;
        if (c.mesh.pipeline == 1) {
          c.pipeline = PipelineKind::k1F1B;
          c.interleave = 1;
        }
      });
    }
  };
  trade("tensor", &Mesh::tensor);
  trade("pipeline", &Mesh::pipeline);
  trade("context", &Mesh::context);
  if (s.mesh.tensor > 1 && !s.sequence_parallel) {
    add("sequence parallelism", [](ClusterStrategy& c) { c.sequence_parallel = true; });
  }
  if (s.mesh.pipeline > 1) {
    for (const PipelineKind kind : {PipelineKind::k1F1B,
                                    PipelineKind::kZbH1,
                                    PipelineKind::kZbH2,
                                    PipelineKind::kZb2p,
                                    PipelineKind::kZbV}) {
      if (kind == s.pipeline) continue;
      add(format("schedule %s", pipeline_name(kind)), [&](ClusterStrategy& c) {
        c.pipeline = kind;
        c.interleave = 1;
      });
    }
    for (const int v : {std::max(2, s.interleave * 2), s.interleave / 2}) {
      if (v < 2) continue;
      add(format("schedule interleaved, %d chunks a stage", v), [&](ClusterStrategy& c) {
        c.pipeline = PipelineKind::kInterleaved;
        c.interleave = v;
      });
    }
  }
  if (planner.model().stack.experts > 0) {
    for (const int e : {s.expert * 2, s.expert / 2}) {
      if (e >= 1) add(format("expert %d", e), [&](ClusterStrategy& c) { c.expert = e; });
    }
  }
  if (s.optimizer_tier == Tier::kDevice) {
    add("optimizer and gradients on the host",
        [](ClusterStrategy& c) { c.optimizer_tier = c.gradient_tier = Tier::kHost; });
  } else {
    add("optimizer and gradients on the card",
        [](ClusterStrategy& c) { c.optimizer_tier = c.gradient_tier = Tier::kDevice; });
  }
  if (s.activation_tier == Tier::kDevice) {
    add("activations on the host", [](ClusterStrategy& c) { c.activation_tier = Tier::kHost; });
  }
  if (s.loss_chunk_rows == 0) {
    add("loss in chunks of 1024 rows", [](ClusterStrategy& c) { c.loss_chunk_rows = 1024; });
  }
  if (!s.flash_attention) {
    add("flash attention", [](ClusterStrategy& c) { c.flash_attention = true; });
  }
  if (!s.fused) add("fused norms and losses", [](ClusterStrategy& c) { c.fused = true; });
  if (!s.overlap_reduce || !s.overlap_gather) {
    add("overlap of data-parallel communication",
        [](ClusterStrategy& c) { c.overlap_reduce = c.overlap_gather = true; });
  }
  return out;
}

}  // namespace

std::vector<StepPart> step_parts(const Prediction& p) {
  const StepTime& t = p.time;
  std::vector<StepPart> parts;
  for (int c = 0; c < kOpClasses; ++c) {
    parts.push_back(
        {op_class_name(static_cast<OpClass>(c)), t.work.compute[static_cast<size_t>(c)]});
  }
  parts.push_back({"waiting for launches", t.work.launch});
  parts.push_back({"tensor communication", t.work.tensor});
  parts.push_back({"context communication", t.work.context});
  parts.push_back({"expert communication", t.work.expert});
  parts.push_back({"parameter gathers", t.gather_ns});
  parts.push_back({"gradient reduction", t.reduce_ns});
  parts.push_back({"optimizer", t.optimizer_ns});
  parts.push_back({"offload", t.offload_ns});
  parts.push_back({"slow-down beside communication", t.overlap_ns});
  double known = 0;
  for (const StepPart& part : parts) known += part.ns;
  // Bubble is what is left: the bounding stage waits for others or for their messages.
  const double rest = std::max(0.0, t.step_ns - known);
  const double transfer = std::min(t.transfer_ns, rest);
  parts.push_back({"transfers between stages", transfer});
  parts.push_back({"pipeline bubble", rest - transfer});
  std::erase_if(parts, [&](const StepPart& part) { return part.ns < 1e-6 * t.step_ns; });
  std::stable_sort(
      parts.begin(), parts.end(), [](const StepPart& a, const StepPart& b) { return a.ns > b.ns; });
  return parts;
}

std::string limit_sentence(const Planner& planner, const ClusterStrategy& s, const Prediction& p) {
  if (!p.fits) {
    const StageMemory& stage = p.memory[static_cast<size_t>(p.fullest_stage)];
    size_t largest = 0;
    for (size_t c = 0; c < stage.bytes.size(); ++c) {
      if (stage.bytes[c] > stage.bytes[largest]) largest = c;
    }
    return format("Memory: stage %d needs %s, %s more than the card has; most of it are %s (%s).",
                  p.fullest_stage,
                  format_bytes(stage.total()).c_str(),
                  format_bytes(stage.total() - p.capacity_bytes).c_str(),
                  memory_category_name(static_cast<MemoryCategory>(largest)),
                  format_bytes(static_cast<double>(stage.bytes[largest])).c_str());
  }
  const std::vector<StepPart> parts = step_parts(p);
  const auto share = [&](double ns) { return 100 * ns / p.time.step_ns; };
  // The least that the model's FLOPs take, against everything above it.
  const StepPart* worst = nullptr;
  for (const StepPart& part : parts) {
    if (part.name == op_class_name(OpClass::kMatmul) ||
        part.name == op_class_name(OpClass::kAttention)) {
      continue;
    }
    if (worst == nullptr || part.ns > worst->ns) worst = &part;
  }
  double products = 0;
  for (const StepPart& part : parts) {
    if (part.name == op_class_name(OpClass::kMatmul) ||
        part.name == op_class_name(OpClass::kAttention)) {
      products += part.ns;
    }
  }
  if (worst == nullptr || share(worst->ns) < 10) {
    return format(
        "Arithmetic: matrix products and attention are %.0f %% of the step; nothing else "
        "is over 10 %%.",
        share(products));
  }
  std::string why;
  if (worst->name == "tensor communication" && s.mesh.tensor > planner.cluster().gpus_per_node) {
    why = ", as tensor groups cross nodes";
  } else if (worst->name == "pipeline bubble") {
    why = format(", with %lld micro-batches for %d stages",
                 static_cast<long long>(s.accumulation()),
                 s.mesh.pipeline);
  } else if (worst->name == op_class_name(OpClass::kMemory)) {
    why = ", bound by the card's memory bandwidth";
  }
  return format("After products and attention (%.0f %% of the step): %s, %.0f %%%s.",
                share(products),
                worst->name.c_str(),
                share(worst->ns),
                why.c_str());
}

std::vector<PlanChange> nearest_changes(Planner& planner,
                                        const ClusterStrategy& strategy,
                                        const Prediction& prediction) {
  std::vector<PlanChange> fitting, others;
  for (auto& [what, changed] : neighbours(planner, strategy)) {
    PlanChange change{what, changed, {}, 0, 0};
    try {
      change.prediction = planner.predict(changed);
    } catch (const ConfigError&) {
      continue;  // that knob does not turn here
    }
    change.speed = change.prediction.tokens_per_s / prediction.tokens_per_s;
    change.memory_bytes = peak_of(change.prediction) - peak_of(prediction);
    if (!change.prediction.fits) {
      if (!prediction.fits && change.memory_bytes < 0) others.push_back(std::move(change));
    } else if (!prediction.fits || change.speed > 1.005) {
      fitting.push_back(std::move(change));
    }
  }
  std::stable_sort(fitting.begin(), fitting.end(), [](const PlanChange& a, const PlanChange& b) {
    return a.speed > b.speed;
  });
  if (!fitting.empty() || prediction.fits) return fitting;
  std::stable_sort(others.begin(), others.end(), [](const PlanChange& a, const PlanChange& b) {
    return a.memory_bytes < b.memory_bytes;
  });
  return others;
}

}  // namespace vitrine
