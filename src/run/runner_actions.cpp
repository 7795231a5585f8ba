// What each kind of action does.
#include <algorithm>
#include <array>

#include "core/error.h"
#include "run/runner.h"
#include "run/runner_names.h"

namespace vitrine {
void Runner::record(
    const Action& action, SpanKind kind, StringId name, int32_t lane, int64_t start_ns) {
  if (!recorder_ || !recorder_->recording()) return;
  SpanRecord span;
  span.start_ns = start_ns;
  span.duration_ns = now_ns() - start_ns;
  span.name = name;
  span.kind = kind;
  span.lane = lane;
  span.step = static_cast<int32_t>(input_.step);
  span.micro_batch = action.micro_batch;
  if (action.block >= 0) span.block = names_->blocks[static_cast<size_t>(action.block)];
  recorder_->span(span);
}

void Runner::record_collective(const Action& action,
                               SpanKind kind,
                               const char* name,
                               Communicator& comm,
                               DType dtype,
                               const CallTraffic& traffic,
                               int32_t lane,
                               int64_t start_ns) {
  if (!recorder_ || !recorder_->recording()) return;
  SpanRecord span;
  span.start_ns = start_ns;
  span.duration_ns = now_ns() - start_ns;
  span.name = names_->action(action);
  span.kind = kind;
  span.lane = lane;
  span.step = static_cast<int32_t>(input_.step);
  span.micro_batch = action.micro_batch;
  if (action.block >= 0) span.block = names_->blocks[static_cast<size_t>(action.block)];
  CollectiveRecord collective;
  collective.name = names_->intern(name);
  collective.dtype = names_->intern(dtype_name(dtype));
  collective.group = names_->group(comm, comm.global_ranks());
  collective.sequence = names_->next_sequence(comm.name());
  collective.in_elements = traffic.in_elements;
  collective.out_elements = traffic.out_elements;
  collective.sent_bytes = traffic.sent_bytes;
  collective.peer = action.peer;
  recorder_->collective(span, collective);
}

// One span an operation, where wanted; on a GPU, what its kernels belong to.
class Runner::Operations : public OpObserver {
 public:
  Operations(Runner& runner, const Action& action, int32_t lane)
      : runner_(runner), action_(action), lane_(lane) {}
  // Itself, or null when nobody wants to know.
  OpObserver* wanted() {
    const bool spans = runner_.recorder_ && runner_.recorder_->wants_operations();
    return spans || runner_.gpu_trace_ ? this : nullptr;
  }

  void begins(const TapeNode& node, bool backward) override {
    if (!runner_.gpu_trace_) return;
    GpuWork work = runner_.gpu_work(action_, lane_);
    work.name = name(node, backward);
    runner_.gpu_trace_->begin(work);
  }
  void ended(const TapeNode& node, bool backward, int64_t start, int64_t end) override {
    if (runner_.gpu_trace_) runner_.gpu_trace_->end();
    if (!runner_.recorder_ || !runner_.recorder_->wants_operations()) return;
    SpanRecord span;
    span.start_ns = start;
    span.duration_ns = end - start;
    span.name = name(node, backward);
    span.kind = SpanKind::kOperation;
    span.lane = lane_;
    span.step = static_cast<int32_t>(runner_.input_.step);
    span.micro_batch = action_.micro_batch;
    span.block = runner_.names_->blocks[static_cast<size_t>(action_.block)];
    runner_.recorder_->span(span);
  }

 private:
  StringId name(const TapeNode& node, bool backward) const {
    const Names& names = *runner_.names_;
    return (backward ? names.backward_operations : names.operations).at(node.op->name);
  }

  Runner& runner_;
  const Action& action_;
  int32_t lane_;
};

GpuWork Runner::gpu_work(const Action& action, int32_t lane) const {
  GpuWork work;
  work.name = names_->action(action);
  if (action.block >= 0) work.block = names_->blocks[static_cast<size_t>(action.block)];
  work.lane = lane;
  work.step = static_cast<int32_t>(input_.step);
  work.micro_batch = action.micro_batch;
  return work;
}

void Runner::sample_memory() {
  if (recorder_ && recorder_->wants_memory())
    recorder_->memory_sample(now_ns(), ledger_.by_category());
}

void Runner::bind_ports(int block,
                        int micro,
                        bool backward,
                        std::vector<TensorView>& inputs,
                        std::vector<TensorView>& outputs,
                        std::vector<TensorView>& parameters) {
  const GraphBlock& b = graph_.blocks[static_cast<size_t>(block)];
  for (const int e : b.inputs) inputs.push_back(activations_.value(e, micro));
  for (const int e : b.outputs) outputs.push_back(activations_.value(e, micro));
  const auto& uses = graph_.parameters->uses[static_cast<size_t>(block)];
  for (size_t i = 0; i < uses.size(); ++i) {
    if (const auto published = store_.take_published(uses[i].unit)) {
      execution_.device->waiting_begins();
      execution_.device->after(published);
      execution_.device->waiting_ends();
    }
    // What backward does not read was not gathered for it, and another lane may be gathering it
    // now.
    const bool read =
        !backward || b.tape->backward_reads_parameter(static_cast<int>(i), strategy_.recompute);
    parameters.push_back(
        read ? store_.parameter(uses[i])
             : TensorView{nullptr, graph_.parameters->of(uses[i]).shape, strategy_.compute_dtype});
  }
}

void Runner::run_forward(const Action& action, int32_t lane) {
  load_batch(action.micro_batch, lane);
  const int64_t start = now_ns();
  const GraphBlock& block = graph_.blocks[static_cast<size_t>(action.block)];
  const int micro = action.micro_batch;
  for (const int e : block.outputs) activations_.write_value(e, micro);
  std::vector<TensorView> inputs, outputs, parameters;
  bind_ports(action.block, micro, false, inputs, outputs, parameters);
  const bool keep = training_ && !strategy_.recompute && block.tape->needs_backward();
  TapeBindings bindings;
  bindings.inputs = inputs;
  bindings.outputs = outputs;
  bindings.parameters = parameters;
  bindings.saved = activations_.allocate_saved(action.block, micro);
  bindings.scratch = scratch_.data();
  bindings.device = execution_.device.get();
  bindings.forward_only = !keep;
  Operations operations(*this, action, lane);
  issue(action, bindings, [&] {
    block.tape->forward(*execution_.backend, bindings, operations.wanted());
  });
  sample_memory();
  if (!keep) activations_.free_saved(action.block, micro);
  for (const int e : block.outputs) {
    const double weight = graph_.edges[static_cast<size_t>(e)].loss_weight;
    if (weight != 0) execution_.math->add_loss(activations_.value(e, micro), weight);
  }
  record(action, SpanKind::kForward, names_->action(action), lane, start);
  for (const int e : block.inputs) activations_.done_with_value(e, micro);
  for (const int e : block.outputs) activations_.drop_unread(e, micro);
}

void Runner::run_backward(const Action& action, int32_t lane) {
  const int64_t start = now_ns();
  const GraphBlock& block = graph_.blocks[static_cast<size_t>(action.block)];
  const Tape& tape = *block.tape;
  const int micro = action.micro_batch;
  std::vector<TensorView> inputs, outputs, parameters, doutputs;
  bind_ports(action.block, micro, true, inputs, outputs, parameters);
  // Losses start the backward: d(scaled mean loss) / d(this micro-batch's loss).
  for (const int e : block.outputs) {
    const Edge& edge = graph_.edges[static_cast<size_t>(e)];
    if (edge.loss_weight != 0 && edge.requires_grad) {
      const auto parts = static_cast<double>(strategy_.accumulation * strategy_.mesh.data);
      const double seed = edge.loss_weight * input_.loss_scale / parts;
      const GradView target = activations_.gradient_target(e, micro);
      std::array<std::byte, 8> value{};
      convert(edge.type.dtype, value.data(), DType::kF64, &seed, 1);
      execution_.device->upload(target.view.data, value.data(), dtype_bytes(edge.type.dtype));
    }
    doutputs.push_back(activations_.gradient(e, micro));
  }
  std::vector<GradView> dinputs, dparameters;
  for (size_t port = 0; port < block.inputs.size(); ++port) {
    const bool wanted = tape.inputs()[port].requires_grad;
    dinputs.push_back(wanted ? activations_.gradient_target(block.inputs[port], micro)
                             : GradView{});
  }
  for (const ParameterUse use : graph_.parameters->uses[static_cast<size_t>(action.block)]) {
    dparameters.push_back(store_.gradient(use));
  }
  TapeBindings bindings;
  bindings.inputs = inputs;
  bindings.outputs = outputs;
  bindings.parameters = parameters;
  bindings.doutputs = doutputs;
  bindings.dinputs = dinputs;
  bindings.dparameters = dparameters;
  bindings.scratch = scratch_.data();
  bindings.device = execution_.device.get();
  Operations operations(*this, action, lane);
  OpObserver* observed = operations.wanted();
  bindings.saved = strategy_.recompute ? activations_.allocate_saved(action.block, micro)
                                       : activations_.saved(action.block, micro);
  issue(action, bindings, [&] {
    if (strategy_.recompute) {
      const int64_t again = now_ns();
      tape.recompute(*execution_.backend, bindings, observed);
      record(action, SpanKind::kRecompute, names_->action(action), lane, again);
    }
    tape.backward(*execution_.backend, bindings, observed);
  });
  sample_memory();
  activations_.free_saved(action.block, micro);
  for (size_t port = 0; port < block.outputs.size(); ++port) {
    activations_.free_gradient(block.outputs[port], micro);
    if (backward_keeps_output(tape, static_cast<int>(port), strategy_.recompute)) {
      activations_.done_with_value(block.outputs[port], micro);
    }
  }
  for (size_t port = 0; port < block.inputs.size(); ++port) {
    if (backward_keeps_input(tape, static_cast<int>(port), strategy_.recompute)) {
      activations_.done_with_value(block.inputs[port], micro);
    }
  }
  record(action, SpanKind::kBackward, names_->action(action), lane, start);
}

void Runner::run_transfer(const Action& action, int32_t lane) {
  const bool down = action.lane == LaneId::kSendDown || action.lane == LaneId::kReceiveDown;
  const bool send = action.kind == ActionKind::kSend;
  Communicator& comm = comms_.pair(action.peer, down);
  const int other = 1 - comm.rank();
  comm.set_context(input_.step,
                   std::string(action_kind_name(action.kind)) + " of " +
                       graph_.edges[static_cast<size_t>(action.edge)].name);
  const int64_t start = now_ns();
  CallTraffic traffic;
  const TensorType& type = graph_.edges[static_cast<size_t>(action.edge)].type;
  const auto bytes = static_cast<size_t>(type.bytes());
  if (send) {
    const TensorView view = down ? activations_.value(action.edge, action.micro_batch)
                                 : activations_.gradient(action.edge, action.micro_batch);
    VITRINE_ASSERT(view);
    comm.send({static_cast<const std::byte*>(view.data), bytes}, other);
    traffic.sent_bytes = static_cast<int64_t>(bytes);
    traffic.in_elements = type.shape.elements();
    if (down) {
      activations_.done_with_value(action.edge, action.micro_batch);
    } else {
      activations_.free_gradient(action.edge, action.micro_batch);
    }
  } else {
    traffic.out_elements = type.shape.elements();
    if (down) {
      const TensorView view = activations_.write_value(action.edge, action.micro_batch);
      comm.receive({static_cast<std::byte*>(view.data), bytes}, other);
    } else {
      Buffer incoming(ledger_, MemoryCategory::kCommunication, "received gradient", bytes);
      comm.receive({static_cast<std::byte*>(incoming.data()), bytes}, other);
      activations_.add_gradient(
          action.edge, action.micro_batch, {incoming.data(), type.shape, type.dtype});
    }
  }
  record_collective(action,
                    send ? SpanKind::kSend : SpanKind::kReceive,
                    send ? "send" : "receive",
                    comm,
                    type.dtype,
                    traffic,
                    lane,
                    start);
}

// Combines every rank's sums in rank order, so all ranks know the same bits.
void Runner::run_norm(const Action& action, int32_t lane) {
  const int64_t start = now_ns();
  StepMath& math = *execution_.math;
  for (int u = 0; u < static_cast<int>(store_.table().units.size()); ++u) {
    // Alone, nothing was reduced: what no use contributed to is still to be zeroed.
    if (store_.ranks() == 1 && store_.local(u) &&
        !store_.table().units[static_cast<size_t>(u)].frozen) {
      store_.settle_gradients(u);
    }
  }
  store_.add_gradient_squares(math);
  const std::span<const std::byte> message = math.message(input_.progress);
  int ranks = 1;
  if (!comms_.alone()) {
    Communicator& comm = comms_.totals();
    ranks = comm.size();
    comm.set_context(input_.step, "gradient norm");
    const std::span<std::byte> all = math.room(ranks);
    const int64_t communicate = now_ns();
    execution_.device->waiting_begins();
    comm.all_gather(message, all);
    execution_.device->waiting_ends();
    if (execution_.device->is_host()) output_.exposed_comm_ns += now_ns() - communicate;
    CallTraffic traffic;
    const auto bytes = static_cast<int64_t>(message.size());
    traffic.sent_bytes = bytes * (ranks - 1);
    traffic.in_elements = bytes;
    traffic.out_elements = bytes * ranks;
    record_collective(
        action, SpanKind::kCollective, "all_gather", comm, DType::kU8, traffic, lane, communicate);
  }
  const auto parts = static_cast<double>(strategy_.accumulation * strategy_.mesh.data);
  math.combine(ranks, {parts, input_.loss_scale, input_.optimizer.clip});
  record(action, SpanKind::kOptimizer, names_->norm, lane, start);
}

void Runner::execute(int index, int32_t lane) {
  const Action& action = schedule_.actions[static_cast<size_t>(index)];
  {
    // The waits too: a trace tells by them what the action's device work stood behind.
    const GpuWorkScope scope(gpu_trace_, gpu_trace_ ? gpu_work(action, lane) : GpuWork{});
    for (const int wait : action.waits) {
      if (schedule_.actions[static_cast<size_t>(wait)].lane != action.lane) {
        execution_.device->wait(wait);
      }
    }
    perform(action, lane);
  }
  execution_.device->mark(index);
}

void Runner::perform(const Action& action, int32_t lane) {
  const int64_t start = now_ns();
  const bool in_the_way = action.lane == LaneId::kCompute;  // without overlap
  const auto waited = [&](int64_t since) {
    execution_.device->waiting_ends();
    if (execution_.device->is_host()) output_.exposed_comm_ns += now_ns() - since;
  };
  const auto context = [&](Communicator& comm) {
    const std::string what = std::string(action_kind_name(action.kind)) + " of " +
                             graph_.blocks[static_cast<size_t>(action.block)].name;
    comm.set_context(input_.step, what);
    comms_.world()->progress(input_.step, what);
  };
  switch (action.kind) {
    case ActionKind::kForward:
      return run_forward(action, lane);
    case ActionKind::kBackward:
      return run_backward(action, lane);
    case ActionKind::kSend:
    case ActionKind::kReceive:
      return run_transfer(action, lane);
    case ActionKind::kNorm:
      return run_norm(action, lane);
    case ActionKind::kGather:
    case ActionKind::kPublish: {
      Communicator& comm = comms_.data(action.lane);
      context(comm);
      if (in_the_way) execution_.device->waiting_begins();
      const CallTraffic traffic = comms_.gather_parameters(comm, store_, action.units);
      if (action.kind == ActionKind::kPublish) {
        const std::shared_ptr<void> here = execution_.device->point();
        for (const int unit : action.units) store_.set_published(unit, here);
      }
      record_collective(action,
                        SpanKind::kGather,
                        "all_gather",
                        comm,
                        strategy_.compute_dtype,
                        traffic,
                        lane,
                        start);
      if (in_the_way) waited(start);
      return;
    }
    case ActionKind::kReserve:
      if (action.of_reduction) return comms_.reserve_reduction(store_, action);
      for (const int unit : action.units) store_.open_gathered(unit);
      return;
    case ActionKind::kRelease:
      if (action.of_reduction) return comms_.release_reduction(store_, action);
      for (const int unit : action.units) store_.close_gathered(unit);
      return;
    case ActionKind::kReduce: {
      Communicator& comm = comms_.data(action.lane);
      context(comm);
      if (in_the_way) execution_.device->waiting_begins();
      const CallTraffic traffic = comms_.reduce_gradients(comm, store_, *execution_.math, action);
      record_collective(action,
                        SpanKind::kReduce,
                        "reduce_scatter",
                        comm,
                        strategy_.gradient_dtype,
                        traffic,
                        lane,
                        start);
      if (in_the_way) waited(start);
      return;
    }
    case ActionKind::kUpdate:
      // A unit that this step did not read may still be on its way to the peers.
      execution_.device->after(store_.take_published(action.units[0]));
      store_.update(action.units[0], *execution_.math, input_.optimizer, input_.lr, input_.update);
      record(action, SpanKind::kOptimizer, names_->action(action), lane, start);
      return;
  }
}

}  // namespace vitrine
