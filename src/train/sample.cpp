// Sampling: one forward a token, logits of the last position only.
#include "train/sample.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "core/buffer.h"
#include "core/error.h"
#include "core/json.h"
#include "core/philox.h"
#include "data/tokens.h"
#include "schedule/fp8_linears.h"
#include "train/run_folder.h"

namespace vitrine {

TrainedRun open_trained_run(const std::string& run_folder) {
  TrainedRun run;
  run.config = read_run_for_one_rank(run_folder);
  run.config.strategy.micro_batch = 1;
  run.config.strategy.accumulation = 1;
  BuildOptions build;
  build.with_hidden = true;
  build.fp8 = fp8_linears(run.config.fp8, run.config.strategy);
  BuiltModel built = build_model(parse_json(run.config.model, "model"), build);
  run.family = built.family;
  run.model = built.resolved;
  run.sequence_length = built.sequence_length;
  run.clip_frames = built.clip_frames;
  EngineOptions options;
  options.strategy = run.config.strategy;
  options.optimizer = run.config.optimizer;
  options.seed = run.config.train.seed;
  run.engine = initialize(std::move(built.model), built.batch, options);
  run.engine->load(run_folder + "/checkpoints", false);
  return run;
}

int32_t draw_token(const std::vector<float>& logits, const SampleOptions& options, double u) {
  const auto allowed = static_cast<size_t>(options.allowed);
  std::vector<int32_t> ids(allowed > 0 ? std::min(allowed, logits.size()) : logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto of = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  const auto likelier = [&](int32_t a, int32_t b) {
    return of(a) != of(b) ? of(a) > of(b) : a < b;
  };
  if (options.temperature <= 0) return *std::min_element(ids.begin(), ids.end(), likelier);
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < ids.size()) {
    std::partial_sort(ids.begin(), ids.begin() + options.top_k, ids.end(), likelier);
    ids.resize(static_cast<size_t>(options.top_k));
  }
  const double largest = of(*std::min_element(ids.begin(), ids.end(), likelier));
  std::vector<double> weights;
  for (const int32_t id : ids)
    weights.push_back(std::exp((of(id) - largest) / options.temperature));
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (left < weights[i]) return ids[i];
    left -= weights[i];
  }
  return ids.back();
}

TokenSampler::TokenSampler(Engine& engine) : engine_(engine) {
  const Graph& graph = engine.graph();
  if (!graph.results.contains("hidden")) {
    throw ConfigError("sampling needs a decoder built with with_hidden");
  }
  const TensorType& tokens = graph.edges[static_cast<size_t>(graph.edge("batch.tokens"))].type;
  if (tokens.shape[0] != 1) throw ConfigError("sampling needs an engine of micro-batch 1");
  length_ = tokens.shape[1];
  const size_t head = graph.blocks.size() - 1;
  const auto& parameters = graph.blocks[head].tape->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name == "weight")
      weight_ = engine.store().parameter(graph.parameters->uses[head][i]);
  }
  VITRINE_ASSERT(weight_);
  vocabulary_ = weight_.shape[0];
  hidden_ = weight_.shape[1];
}

std::vector<float> TokenSampler::logits(const std::vector<int32_t>& tokens) {
  if (tokens.empty()) throw ConfigError("sampling needs a prompt of at least one token");
  for (const int32_t id : tokens) {
    if (id < 0 || id >= vocabulary_) {
      throw ConfigError("the prompt holds id " + std::to_string(id) +
                        ", the model's vocabulary is 0 to " + std::to_string(vocabulary_ - 1));
    }
  }
  const auto used = std::min(static_cast<int64_t>(tokens.size()), length_);
  // What follows the last token is never looked at: attention is causal.
  std::vector<int32_t> window(static_cast<size_t>(length_), 0),
      targets(static_cast<size_t>(length_), 0);
  std::copy(tokens.end() - used, tokens.end(), window.begin());
  const Shape shape{1, length_};
  const EvalReport report = engine_.evaluate({{"tokens", {window.data(), shape, DType::kI32}},
                                              {"targets", {targets.data(), shape, DType::kI32}}});
  const TensorView hidden = report.results.at("hidden");
  TensorView last = hidden;
  last.data = static_cast<char*>(hidden.data) +
              static_cast<size_t>((used - 1) * hidden_) * dtype_bytes(hidden.dtype);
  last.shape = {1, hidden_};

  const Attrs attrs;
  const std::vector<TensorType> types = {{last.shape, last.dtype}, {weight_.shape, weight_.dtype}};
  const OpSignature signature = find_op("linear").infer(attrs, types);
  Buffer out(engine_.ledger(),
             MemoryCategory::kWorkspace,
             "logits",
             static_cast<size_t>(signature.out[0].bytes()));
  Buffer workspace(engine_.ledger(),
                   MemoryCategory::kWorkspace,
                   "logits",
                   static_cast<size_t>(signature.forward_workspace));
  const TensorView in[] = {last, weight_};
  const TensorView result[] = {{out.data(), signature.out[0].shape, signature.out[0].dtype}};
  OpCall call;
  call.attrs = &attrs;
  call.in = in;
  call.out = result;
  call.workspace = workspace.data();
  cpu_backend().kernels("linear").forward(call);
  std::vector<float> logits(static_cast<size_t>(vocabulary_));
  convert(DType::kF32, logits.data(), result[0].dtype, out.data(), vocabulary_);
  return logits;
}

std::vector<int32_t> TokenSampler::sample(std::vector<int32_t> prompt,
                                          int64_t count,
                                          int32_t stop,
                                          const SampleOptions& options,
                                          const std::function<void(int32_t)>& on_token) {
  const Philox random(options.seed, stream_of("sample"));
  std::vector<int32_t> made;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t token =
        draw_token(logits(prompt), options, random.uniform(static_cast<uint64_t>(i)));
    if (token == stop) break;
    made.push_back(token);
    prompt.push_back(token);
    if (on_token) on_token(token);
  }
  return made;
}

bool is_byte_level(const RunConfig& config, int64_t vocabulary) {
  if (config.data.kind == "tokens" && std::filesystem::exists(config.data.path)) {
    const int64_t stated = TokenShards::open(config.data.path).vocabulary();
    if (stated > 0) return stated == kByteVocabulary;
  }
  return vocabulary == 256 || vocabulary == kByteVocabulary;
}

}  // namespace vitrine
