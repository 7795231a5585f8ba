// vitrine bench: measurements of this machine and of the engine's own promises.
#include <cstdio>
#include <memory>

#include "cli/benches.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "ops/cpu/bench_ops.h"

namespace vitrine {
namespace {

int bench_operations(const std::string& only, bool json) {
  OpBenchOptions options;
  options.only = only;
  Json rows = Json::array();
  for (const OpTiming& t : bench_ops(options)) {
    rows.push_back({{"op", t.op},
                    {"shapes", t.shapes},
                    {"backward", t.backward},
                    {"fast_ns", t.fast_ns},
                    {"reference_ns", t.reference_ns},
                    {"gflops", t.gflops},
                    {"gbps", t.gbps}});
    if (json) continue;
    std::printf("%-22s %-9s %-44s %10s  %7.1f GFLOP/s  %6.1f GB/s\n",
                t.op.c_str(),
                t.backward ? "backward" : "forward",
                t.shapes.c_str(),
                format_ns(t.fast_ns).c_str(),
                t.gflops,
                t.gbps);
  }
  if (json) std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, CommandAction& action, const CommandLine& line) {
  struct Arguments {
    std::string name, op;
    BenchOptions options;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Measure: zero (memory), ops, step, recorder, plan");
  command
      ->add_option("name",
                   a->name,
                   "zero: model-state bytes against ZeRO's arithmetic\nops: every operation\n"
                   "step: a training step on CPU or GPU ranks\nrecorder: recording on against off\n"
                   "plan: speed of the planner")
      ->required()
      ->check(CLI::IsMember({"zero", "ops", "step", "recorder", "plan"}));
  command->add_option("--model", a->options.model, "decoder or world")
      ->check(CLI::IsMember({"decoder", "world"}))
      ->capture_default_str();
  command->add_option("--size", a->options.size, "Size of the model")->capture_default_str();
  command->add_option("--steps", a->options.steps)->capture_default_str();
  command->add_option("--warmup", a->options.warmup, "Of step: steps before those that count")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--pairs", a->options.pairs, "Of recorder")->capture_default_str();
  command->add_option("--micro-batch", a->options.micro_batch);
  command->add_option("--dtype", a->options.dtype, "Of step: f32, bf16, f16")
      ->capture_default_str();
  command->add_option("--gradient-dtype", a->options.gradient_dtype, "Of step: f32, bf16")
      ->capture_default_str();
  command
      ->add_option("--states",
                   a->options.states,
                   "Of step: master weights and moments, f32 or (of bf16) bf16")
      ->capture_default_str();
  command->add_option("--sequence", a->options.sequence, "Of step: tokens a sample");
  command->add_option("--accumulate", a->options.accumulation, "Of step: micro-batches a step")
      ->capture_default_str();
  command->add_option("--stage", a->options.stage, "Of step: ZeRO stage")->capture_default_str();
  command
      ->add_option("--prefetch", a->options.prefetch, "Of step: elements gathered ahead at stage 3")
      ->capture_default_str();
  command
      ->add_option("--persistent",
                   a->options.persistent,
                   "Of step: parameters that stage 3 keeps whole: names, or beginnings ending in *")
      ->delimiter(',');
  command->add_option("--ranks", a->options.ranks, "Of step")->capture_default_str();
  command->add_option("--loss-chunk-rows", a->options.loss_chunk_rows, "Of step, for decoders");
  command->add_flag("--fp8", a->options.fp8, "Of step: 8-bit products in the body, with bf16");
  command->add_flag("--recompute", a->options.recompute, "Of step: full recomputation");
  command
      ->add_option("--graphs",
                   a->options.graphs,
                   "Of step, on a GPU: replay blocks as CUDA graphs: off, auto (where it pays), on")
      ->check(CLI::IsMember({"off", "auto", "on"}))
      ->capture_default_str();
  command->add_option("--trace", a->options.trace, "Of step: file for three more, recorded steps");
  command->add_option("--op", a->op, "Of ops: only this operation");
  command->add_option("--device", a->options.device, "Of ops and step: cpu or gpu")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->capture_default_str();
  command->add_flag("--json", a->options.json);
  command->footer("Example: vitrine bench zero --json");
  command->callback([a, &action, &line] {
    action = [a, &line] {
      if (a->name == "zero") return bench_zero(a->options);
      if (a->name == "ops" && a->options.device == "gpu") return bench_gpu(a->op, a->options.json);
      if (a->name == "ops") return bench_operations(a->op, a->options.json);
      if (a->name == "step") return bench_step(a->options, line);
      if (a->name == "plan") return bench_plan(a->options);
      return bench_recorder(a->options);
    };
  });
}

}  // namespace vitrine
