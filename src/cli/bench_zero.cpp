// vitrine bench zero.
#include <cstdio>

#include "cli/benches.h"
#include "core/json.h"
#include "models/registry.h"
#include "run/shard_store.h"
#include "schedule/memory.h"

namespace vitrine {

int bench_zero(const BenchOptions& options) {
  struct Precision {
    const char* name;
    DType compute, gradient, states;
  };
  const Precision precisions[] = {
      {"fp32", DType::kF32, DType::kF32, DType::kF32},
      {"bf16", DType::kBF16, DType::kBF16, DType::kF32},
      {"bf16, fp32 accumulation", DType::kBF16, DType::kF32, DType::kF32},
      {"bf16 states", DType::kBF16, DType::kBF16, DType::kBF16}};
  Json rows = Json::array();
  bool all_equal = true;
  for (const char* family : {"decoder", "world_model"}) {
    const BuiltModel built = build_model({{"family", family}, {"size", "tiny"}});
    for (const Precision& precision : precisions) {
      for (int stage = 0; stage <= 3; ++stage) {
        for (int ranks = 1; ranks <= 4; ++ranks) {
          Strategy strategy;
          strategy.mesh.data = ranks;
          strategy.shard = Sharding::stage(stage);
          strategy.persistence_threshold = 0;
          strategy.compute_dtype = precision.compute;
          strategy.gradient_dtype = precision.gradient;
          strategy.master_dtype = strategy.moment_dtype = precision.states;
          const ParameterTable table = make_parameter_table(built.model, strategy);
          std::vector<int> blocks;
          for (int b = 0; b < static_cast<int>(built.model.blocks().size()); ++b)
            blocks.push_back(b);
          MemoryLedger ledger;
          const ShardStore store(
              table, strategy, place_in_mesh(strategy.mesh, 0), blocks, 1, ledger);
          const int64_t held = ledger.current(), expected = zero_arithmetic_bytes(table, strategy);
          const int64_t padding = padding_bytes(table, strategy, blocks);
          all_equal = all_equal && held == expected + padding;
          rows.push_back({{"model", family},
                          {"parameters", table.total_elements},
                          {"stage", stage},
                          {"ranks", ranks},
                          {"dtype", precision.name},
                          {"expected_bytes", expected},
                          {"ledger_bytes", held},
                          {"padding_bytes", padding},
                          {"equal", held == expected + padding}});
        }
      }
    }
  }
  if (options.json) {
    std::printf("%s\n", Json{{"rows", rows}}.dump().c_str());
    return all_equal ? 0 : 1;
  }
  std::printf("%-12s %10s  %-24s %5s %5s %13s %13s %9s %5s\n",
              "model",
              "parameters",
              "precision",
              "stage",
              "ranks",
              "expected B",
              "ledger B",
              "padding B",
              "equal");
  for (const Json& row : rows) {
    std::printf("%-12s %10lld  %-24s %5d %5d %13lld %13lld %9lld %5s\n",
                row["model"].get<std::string>().c_str(),
                row["parameters"].get<long long>(),
                row["dtype"].get<std::string>().c_str(),
                row["stage"].get<int>(),
                row["ranks"].get<int>(),
                row["expected_bytes"].get<long long>(),
                row["ledger_bytes"].get<long long>(),
                row["padding_bytes"].get<long long>(),
                row["equal"].get<bool>() ? "yes" : "NO");
  }
  return all_equal ? 0 : 1;
}

}  // namespace vitrine
