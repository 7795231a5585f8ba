// The engine: variants of one model over one store, stepped whole or in parts.
#include "run/engine.h"

#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "core/philox.h"
#include "ops/gpu/precision.h"

namespace vitrine {

struct Engine::Variant {
  Model model;
  ParameterTable table;
  Graph graph;
  Strategy eval_strategy;
  Schedule schedule, eval_schedule;
  std::unique_ptr<Runner> train, eval;
  std::map<std::string, std::vector<std::byte>> results;  // of a device, for the host to read
};

namespace {

bool same_units(const ParameterTable& a, const ParameterTable& b) {
  if (a.units.size() != b.units.size()) return false;
  for (size_t u = 0; u < a.units.size(); ++u) {
    if (a.units[u].name != b.units[u].name || a.units[u].elements != b.units[u].elements)
      return false;
    for (size_t p = 0; p < a.units[u].parameters.size(); ++p) {
      if (a.units[u].parameters[p].name != b.units[u].parameters[p].name) return false;
    }
  }
  return true;
}

// Everything that shapes messages, their order or their values.
std::string agreed_text(const Strategy& s) {
  std::string text = std::string("|") + dtype_name(s.compute_dtype) + dtype_name(s.gradient_dtype) +
                     dtype_name(s.master_dtype) + dtype_name(s.moment_dtype);
  for (const int64_t value : {int64_t{s.mesh.data},
                              int64_t{s.mesh.tensor},
                              int64_t{s.mesh.pipeline},
                              int64_t{s.mesh.context},
                              int64_t{s.shard.stage()},
                              static_cast<int64_t>(s.pipeline_order),
                              int64_t{s.recompute},
                              s.micro_batch,
                              s.accumulation,
                              s.reduce_bucket,
                              s.gather_bucket,
                              s.prefetch_elements,
                              s.max_live_elements,
                              s.max_reuse_distance,
                              int64_t{s.overlap}}) {
    text += "|" + std::to_string(value);
  }
  return text;
}

std::string agreed_text(const OptimizerConfig& o) {
  return format("|%.17g|%.17g|%.17g|%.17g|%.17g|%.17g",
                o.lr,
                o.beta1,
                o.beta2,
                o.eps,
                o.weight_decay,
                o.clip);
}

EngineOptions with_execution(EngineOptions options) {
  if (!options.execution.device) options.execution = cpu_execution();
  return options;
}

}  // namespace

Engine::Engine(
    Model model, const BatchTypes& batch, EngineOptions options, World* world, Recorder* recorder)
    : options_(with_execution(std::move(options))),
      world_(world),
      recorder_(recorder),
      ledger_(*options_.execution.device) {
  const int ranks = world ? world->size() : 1;
  if (options_.strategy.mesh.world() != ranks) {
    throw ConfigError("the mesh has " + std::to_string(options_.strategy.mesh.world()) +
                      " ranks (data " + std::to_string(options_.strategy.mesh.data) +
                      " x pipeline " + std::to_string(options_.strategy.mesh.pipeline) + "), but " +
                      std::to_string(ranks) + " were started");
  }
  place_ = place_in_mesh(options_.strategy.mesh, world ? world->rank() : 0);
  add_variant(std::move(model), batch);
}

Engine::~Engine() {
  // Their threads may still be inside calls on the store and the communicators.
  for (auto& variant : variants_) {
    variant->train.reset();
    variant->eval.reset();
  }
}

int Engine::add_variant(Model model, const BatchTypes& batch) {
  auto variant = std::make_unique<Variant>();
  Variant& v = *variant;
  v.model = std::move(model);
  v.table = make_parameter_table(v.model, options_.strategy);
  if (!variants_.empty() && !same_units(variants_[0]->table, v.table)) {
    throw ConfigError("a variant of a model must own the same parameters as the model");
  }
  v.graph = compile_graph(v.model, v.table, batch, options_.strategy);
  if (options_.execution.backend->brings_workspace()) drop_workspaces(v.graph);
  v.schedule = build_schedule(v.graph, options_.strategy, place_.rank);
  v.eval_strategy = options_.strategy;
  v.eval_strategy.accumulation = 1;
  v.eval_strategy.recompute = false;
  v.eval_schedule = build_schedule(v.graph, v.eval_strategy, place_.rank, true);
  variants_.push_back(std::move(variant));
  if (!store_) {
    store_ = std::make_unique<ShardStore>(
        v.table, options_.strategy, place_, v.schedule.blocks, options_.seed, ledger_);
    comms_ = std::make_unique<LaneCommunicators>(world_, options_.strategy, place_, ledger_);
    check_agreement();
    comms_->share(*store_, v.schedule);
  }
  return static_cast<int>(variants_.size()) - 1;
}

// Ranks of one stage must run the same schedule on the same parameters from the same seed.
void Engine::check_agreement() {
  if (comms_->alone()) return;
  const Variant& v = *variants_[0];
  std::string text = std::to_string(options_.seed);
  for (const Unit& unit : v.table.units) {
    text += unit.name + ":" + std::to_string(unit.elements) + ";";
    for (const UnitParameter& parameter : unit.parameters) text += parameter.name + ",";
  }
  for (const ModelBlock& block : v.model.blocks()) text += block.block->kind() + ";";
  text += agreed_text(options_.strategy) + agreed_text(options_.optimizer);
  const bool host = ledger_.device().is_host();
  text += host ? "|host" : format("|gpu %d %d", gpu::tf32(), gpu::deterministic());
  const uint64_t mine = stream_of(text);
  std::vector<uint64_t> all(static_cast<size_t>(world_->size()));
  comms_->control().set_context(-1, "agreement of all ranks on model and strategy");
  comms_->control().all_gather(std::as_bytes(std::span(&mine, 1)),
                               std::as_writable_bytes(std::span(all)));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r] != all[0]) {
      throw ConfigError("rank " + std::to_string(r) +
                        " was given another model, strategy or seed than rank 0; "
                        "start every rank with the same file and options");
    }
  }
}

Runner& Engine::runner(int variant) {
  Variant& v = *variants_.at(static_cast<size_t>(variant));
  if (!v.train) {
    v.train = std::make_unique<Runner>(v.graph,
                                       options_.strategy,
                                       v.schedule,
                                       *store_,
                                       *comms_,
                                       options_.execution,
                                       ledger_,
                                       recorder_,
                                       true);
  }
  return *v.train;
}

const Graph& Engine::graph(int variant) const {
  return variants_.at(static_cast<size_t>(variant))->graph;
}
const Schedule& Engine::schedule(int variant) const {
  return variants_.at(static_cast<size_t>(variant))->schedule;
}

GraphCounts Engine::graph_counts() const {
  GraphCounts all;
  for (const auto& variant : variants_) {
    for (const auto* runner : {&variant->train, &variant->eval}) {
      if (*runner) all += (*runner)->graph_counts();
    }
  }
  return all;
}

StepInput Engine::make_input(double progress) {
  StepInput input;
  input.step = steps_done_;
  input.update = updates_ + 1;
  input.lr = options_.schedule.at(options_.optimizer.lr, steps_done_, progress);
  input.optimizer = options_.optimizer;
  input.progress = progress;
  const bool scaled = options_.strategy.compute_dtype == DType::kF16;
  input.loss_scale = scaled ? options_.scaler.scale : 1.0;
  return input;
}

// Backward carries what is not finite from the block where it arose to all before it, forward to
// all after it: so the last block with such gradients, and whether all have them, tell most.
std::string Engine::where_not_finite() {
  StepMath& math = *options_.execution.math;
  std::string last;
  int bad = 0, looked_at = 0;
  const ParameterTable& table = store_->table();
  for (int u = 0; u < static_cast<int>(table.units.size()); ++u) {
    const Unit& unit = table.units[static_cast<size_t>(u)];
    if (!store_->local(u) || unit.frozen || store_->shard(u).size() == 0) continue;
    math.begin();
    const ShardRange range = store_->shard(u);
    math.add_squares(
        store_->reduced_gradient(u), options_.strategy.gradient_dtype, range.begin, range.end);
    math.message(0);
    math.combine(1, {});
    ++looked_at;
    if (!math.sums().overflow) continue;
    ++bad;
    last = unit.name;
  }
  if (bad == 0) return "";
  return format("; on rank %d %d of %d blocks have gradients that are not finite, the last is %s",
                place_.rank,
                bad,
                looked_at,
                last.c_str());
}

StepReport Engine::conclude(const StepInput& input, const StepOutput& output) {
  StepReport report;
  report.step = steps_done_++;
  report.lr = input.lr;
  report.loss_scale = input.loss_scale;
  report.skipped = output.overflow;
  report.output = output;
  if (output.overflow) {
    ++skipped_;
    ++bad_in_a_row_;
  } else {
    ++updates_;
    bad_in_a_row_ = 0;
  }
  report.skipped_steps = skipped_;
  if (options_.strategy.compute_dtype == DType::kF16) {
    options_.scaler.update(output.overflow);
  } else if (bad_in_a_row_ >= options_.max_bad_steps) {
    throw NumericError(
        format("the gradients were not finite in %lld steps in a row (the last is step %lld, "
               "loss %g%s): lower the learning rate or clip gradients, and look at the data "
               "for values that are not finite",
               static_cast<long long>(bad_in_a_row_),
               static_cast<long long>(report.step),
               output.loss,
               where_not_finite().c_str()));
  }
  return report;
}

// The GPU is traced while the recorder records; what comes before its window only warms the tracer
// up.
void Engine::follow_recorder(Runner& runner) {
  if (!recorder_ || ledger_.device().is_host()) return;
  if (recorder_->recording() && no_gpu_trace_.empty()) {
    if (gpu_trace_ && gpu_trace_warm_ && recorder_->active()) {
      ledger_.device().synchronize();
      gpu_trace_->forget();
      gpu_trace_warm_ = false;
    }
    if (!gpu_trace_) {
      gpu_trace_ = GpuTrace::start(no_gpu_trace_);
      gpu_trace_warm_ = !recorder_->active();
    }
  }
  runner.set_gpu_trace(recorder_->recording() ? gpu_trace_.get() : nullptr);
}

void Engine::add_gpu_records(RankTimeline& timeline) {
  if (ledger_.device().is_host()) return;
  if (!gpu_trace_) {
    if (!no_gpu_trace_.empty()) timeline.info["gpu.trace"] = no_gpu_trace_;
    return;
  }
  for (auto& variant : variants_) {
    if (variant->train) variant->train->set_gpu_trace(nullptr);
  }
  ledger_.device().synchronize();  // of the last step, updated pieces may be on their way
  try {                            // a tracer that fails is no reason to end a run
    gpu_trace_->stop();
    gpu_trace_->add_to(timeline);
  } catch (const DeviceError& error) {
    timeline.info["gpu.trace"] = no_gpu_trace_ = error.what();
  }
  gpu_trace_.reset();
}

void Engine::forget_next_batches(const Runner* but_of) {
  for (auto& variant : variants_) {
    if (variant->train && variant->train.get() != but_of) variant->train->forget_next();
  }
}

StepReport Engine::train_step(const std::function<BatchViews(int)>& batch,
                              int variant,
                              double progress,
                              double own_progress,
                              bool next_too) {
  if (phase_ != Phase::kReady || micro_ != 0) {
    throw ConfigError(
        "train_step was called in the middle of a step: finish forward, backward and step "
        "first, or use train_step alone");
  }
  StepInput input = make_input(progress);
  input.batch = batch;
  input.may_ask_next = next_too;
  input.progress = own_progress;
  Runner& run = runner(variant);
  forget_next_batches(&run);
  follow_recorder(run);
  return conclude(input, run.step(input));
}

double Engine::forward(const BatchViews& batch) {
  if (options_.strategy.mesh.pipeline > 1) {
    throw ConfigError(
        "forward was called with a pipeline of " + std::to_string(options_.strategy.mesh.pipeline) +
        " stages, which runs several micro-batches at once: call train_step, which asks for "
        "each micro-batch when it is due");
  }
  if (phase_ == Phase::kForwardDone) {
    throw ConfigError(
        "forward was called twice without backward: call backward(loss) first, or evaluate() "
        "for a forward without gradients");
  }
  if (micro_ == static_cast<int>(options_.strategy.accumulation)) {
    throw ConfigError(
        "forward was called after " + std::to_string(micro_) +
        " micro-batches, which is all of gradient_accumulation_steps: call step() first");
  }
  Runner& run = runner(0);
  if (micro_ == 0) {
    input_ = make_input(0);
    input_.batch = [this](int) { return pending_batch_; };
    run.forget_next();
    follow_recorder(run);
    run.begin(input_);
  }
  pending_batch_ = batch;
  const double before = micro_ == 0 ? 0 : run.local_loss();
  run.run_until(schedule().forward_end[static_cast<size_t>(micro_)]);
  last_loss_ = run.local_loss() - before;
  phase_ = Phase::kForwardDone;
  return last_loss_;
}

void Engine::backward(double loss) {
  if (phase_ != Phase::kForwardDone) {
    throw ConfigError(
        "backward was called without a forward before it: call forward(batch), then "
        "backward(loss) with the loss it returned");
  }
  if (!(loss == last_loss_) && !(std::isnan(loss) && std::isnan(last_loss_))) {
    throw ConfigError(
        format("backward got a loss of %.9g, but forward returned %.9g: the loss must not be "
               "scaled or averaged by hand; the engine scales fp16 losses and averages over "
               "micro-batches and ranks itself",
               loss,
               last_loss_));
  }
  runner(0).run_until(schedule().backward_end[static_cast<size_t>(micro_)]);
  ++micro_;
  phase_ = Phase::kBackwardDone;
}

StepReport Engine::step() {
  const auto needed = static_cast<int>(options_.strategy.accumulation);
  if (phase_ == Phase::kForwardDone) {
    throw ConfigError(
        "step was called after forward without backward: the gradients of this micro-batch "
        "are missing; call backward(loss) first");
  }
  if (micro_ < needed) {
    throw ConfigError("step was called after " + std::to_string(micro_) + " of " +
                      std::to_string(needed) + " micro-batches: call forward and backward " +
                      std::to_string(needed - micro_) +
                      " more times, or lower gradient_accumulation_steps");
  }
  const StepOutput output = runner(0).finish();
  micro_ = 0;
  phase_ = Phase::kReady;
  return conclude(input_, output);
}

void Engine::clear_gradients() {
  if (micro_ > 0) {
    throw ConfigError(
        "gradients were cleared between backward and step, which would train on nothing: "
        "remove the call; the engine clears gradients itself after every step");
  }
}

EvalReport Engine::evaluate(const BatchViews& batch, int variant) {
  if (phase_ != Phase::kReady || micro_ != 0) {
    throw ConfigError("evaluate was called in the middle of a step: call step() first");
  }
  Variant& v = *variants_.at(static_cast<size_t>(variant));
  if (!v.eval) {
    v.eval = std::make_unique<Runner>(v.graph,
                                      v.eval_strategy,
                                      v.eval_schedule,
                                      *store_,
                                      *comms_,
                                      options_.execution,
                                      ledger_,
                                      nullptr,
                                      false);
    std::vector<int> results;
    for (const auto& [name, edge] : v.graph.results) results.push_back(edge);
    v.eval->hold_results(results);
  }
  StepInput input;
  input.step = steps_done_;
  input.batch = [&](int) { return batch; };
  v.eval->set_watched(recorder_ && recorder_->recording());
  v.eval->step(input);
  EvalReport report;
  report.loss = v.eval->local_loss();
  for (const auto& [name, edge] : v.graph.results) {
    TensorView view = v.eval->held(edge, 0);
    if (!view) continue;
    if (!ledger_.device().is_host()) {
      std::vector<std::byte>& copy = v.results[name];
      copy.resize(view.bytes());
      ledger_.device().download(copy.data(), view.data, copy.size());
      view.data = copy.data();
    }
    report.results[name] = view;
  }
  return report;
}

std::unique_ptr<Engine> initialize(Model model,
                                   const BatchTypes& batch,
                                   const EngineOptions& options,
                                   World* world,
                                   Recorder* recorder) {
  return std::make_unique<Engine>(std::move(model), batch, options, world, recorder);
}

std::string LossWatch::observe(int64_t step, double loss, double lr) {
  constexpr int64_t kFirst = 10, kPatience = 200;
  if (seen_ < kFirst) first_sum_ += loss;
  ++seen_;
  recent_ = seen_ == 1 ? loss : 0.95 * recent_ + 0.05 * loss;
  if (warned_ || seen_ < kPatience) return "";
  const double first = first_sum_ / kFirst;
  if (recent_ < first - 0.002 * std::fabs(first)) return "";
  warned_ = true;
  return format(
      "the loss has not moved: %.5g over the first %lld steps, %.5g now (step %lld, learning rate "
      "%.3g). Usual reasons: a learning rate that is too small or still warming up, everything "
      "trainable frozen or detached, targets that do not belong to the inputs, or a model at its "
      "floor already",
      first,
      static_cast<long long>(kFirst),
      recent_,
      static_cast<long long>(step),
      lr);
}

}  // namespace vitrine
