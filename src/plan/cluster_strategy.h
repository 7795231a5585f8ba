// How a job is spread over a cluster, as far as it is planned: the engine's Strategy is the part of
// it that runs today.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/strategy.h"

namespace vitrine {

enum class Recompute : uint8_t { kNone, kSelective, kFull };
enum class Tier : uint8_t { kDevice, kHost, kDisk };
// kZb1p and kZb2p: searched for the job's times, with the memory of `pipeline` and twice as many
// micro-batches.
enum class PipelineKind : uint8_t { kGPipe, k1F1B, kInterleaved, kZbH1, kZbH2, kZbV, kZb1p, kZb2p };
// kFramework: logits, an fp32 copy and log-probabilities beside each other, then these, their
// gradient and the logits' (12 bytes an element at the peak); kInPlace: an fp32 copy that becomes
// its own gradient (Megatron's, 6); kFused: one kernel on the logits themselves (FlashAttention's,
// Liger's: 2); kGathered: as kFramework, after every tensor rank has gathered the logits of the
// whole vocabulary. kSplit: on the rank's part of the vocabulary in single steps of a framework
// (PyTorch's loss_parallel): backward holds logits, log-probabilities, the scattered ones, their
// sum with the exponentials and its product (18).
enum class LossForm : uint8_t { kFramework, kInPlace, kFused, kGathered, kSplit };
// Of matrix products; sums, norms and losses are in bf16 or fp32.
enum class Precision : uint8_t { kF32, kF16, kBF16, kF8, kF4 };

// How tokens go to their experts: every copy by itself (NCCL's all-to-all); those for one node over
// the network once; those for one rank once, by fused kernels (DeepEP, HybridEP).
enum class Dispatcher : uint8_t { kCopies, kNodes, kRanks };

const char* recompute_name(Recompute recompute);     // "none", "selective", "full"
const char* tier_name(Tier tier);                    // "device", "host", "disk"
const char* pipeline_name(PipelineKind kind);        // "gpipe", "1f1b", "interleaved", "zb-h1", ...
const char* precision_name(Precision precision);     // "fp32", "fp16", "bf16", "fp8", "fp4"
const char* dispatcher_name(Dispatcher dispatcher);  // "copies", "nodes", "ranks"
// The other way round; throw ConfigError that lists the known ones.
Recompute recompute_from_name(const std::string& name);
Tier tier_from_name(const std::string& name);
PipelineKind pipeline_from_name(const std::string& name);
Precision precision_from_name(const std::string& name);
Dispatcher dispatcher_from_name(const std::string& name);

inline bool operator==(const Mesh& a, const Mesh& b) {
  return std::tie(a.data, a.tensor, a.pipeline, a.context) ==
         std::tie(b.data, b.tensor, b.pipeline, b.context);
}
inline auto operator<=>(const Mesh& a, const Mesh& b) {
  return std::tie(a.data, a.tensor, a.pipeline, a.context) <=>
         std::tie(b.data, b.tensor, b.pipeline, b.context);
}

struct ClusterStrategy {
  // Ranks are numbered tensor fastest, then context, then data, then pipeline, so that tensor
  // groups lie in a node. mesh.data x mesh.context is what ZeRO shards over; expert groups lie
  // inside data x context x tensor (an expert is whole on its rank).
  Mesh mesh;
  int expert = 1;
  int zero_stage = 1;
  int64_t shard_group = 0;  // ranks that share parameters (HSDP, MiCS, hpZ); 0: all of data
  int64_t micro_batch = 1, global_batch = 1;  // samples
  int64_t sequence = 0;                       // tokens a sample
  PipelineKind pipeline = PipelineKind::k1F1B;
  int interleave = 1;  // model chunks a stage (virtual stages)
  Recompute recompute = Recompute::kNone;
  bool sequence_parallel = false;  // norms and residuals split over tensor ranks
  Precision precision = Precision::kBF16;
  // Bytes a parameter. Defaults: bf16 weights, fp32 gradients, fp32 master copy and two moments.
  int weight_bytes = 2, gradient_bytes = 4, master_bytes = 4, moment_bytes = 8;
  int reduce_bytes = 4;  // on the wire, a gradient element
  Tier optimizer_tier = Tier::kDevice, gradient_tier = Tier::kDevice,
       parameter_tier = Tier::kDevice, activation_tier = Tier::kDevice;
  // Weights gathered in one byte (ZeRO++ qwZ, FSDP's fp8 all-gather), gradients reduced in a
  // quarter of theirs (qgZ).
  bool quantized_gather = false, quantized_reduce = false;
  bool overlap_reduce = true, overlap_gather = true;  // data-parallel communication
  bool overlap_tensor = false;  // tensor-parallel communication pipelined with the products
  bool flash_attention = true;  // scores are not kept
  // Generation of the fused attention kernel: 1 (2022-23), 2 (FlashAttention-2), 3
  // (FlashAttention-3, cuDNN 9 on Hopper and later); 0: the newest that the card has.
  int attention_generation = 0;
  bool fused_norm = true, fused_softmax = true;  // in one kernel where the rest is not fused
  bool fused = true;    // norms, activations and losses in one pass each (compiled or by hand)
  bool graphs = false;  // CUDA graphs: no launch cost
  // CUDA graphs of a mixture's layers as far as shapes do not change: all but what lies between the
  // dispatch of tokens and their return; or of the router alone.
  bool static_graphs = false, router_graphs = false;
  int64_t loss_chunk_rows = 0;  // rows of logits alive at once; 0: all
  double imbalance = 1;         // tokens of the fullest expert against the mean
  Dispatcher dispatcher = Dispatcher::kNodes;
  bool overlap_expert = false;  // beside the work of another micro-batch's other direction
  int64_t reduce_bucket = 500'000'000, gather_bucket = 500'000'000;  // elements
  int64_t prefetch_elements = 50'000'000;                            // ZeRO-3
  // Of this engine's runs: parameters up to this size, and those of these names, stay whole under
  // ZeRO-3; those of these names are not trained. Names may end in '*' (schedule/strategy.h).
  int64_t persistence_threshold = 10'000;
  std::vector<std::string> persistent, frozen;
  // Bytes of weights kept between uses under ZeRO-3; -1: weight_bytes. 0: they are made from the
  // master copy's shard each time (FSDP with mixed precision).
  int weight_shard_bytes = -1;
  // Gradients are reduced after each micro-batch instead of once a step (FSDP and DeepSpeed's
  // ZeRO-2 and -3 do, unless told otherwise).
  bool reduce_each_micro_batch = false;
  // Gradients are all-reduced although each rank keeps a part of the optimizer (ZeRO-1 of older
  // stacks, DeepSpeed's BF16_Optimizer).
  bool all_reduce_gradients = false;
  // Collectives into which a block's parameters fall under ZeRO-3: 1 with flat buffers (FSDP), the
  // number of its large tensors without.
  int gathers_per_block = 1;
  // Gate and up are two products, each with its own communication in a tensor group.
  bool gate_apart = false;
  // How the loss keeps its logits.
  LossForm loss_form = LossForm::kFramework;
  // A stage keeps what it sent on until its backward (DeepSpeed's pipeline engine).
  bool keep_stage_outputs = false;
  // Micro-batches for which every stage but the last has room whatever its place in the pipeline
  // (buffers of a static graph); 0: as many as the order has in flight.
  int stage_buffers = 0;
  // Bytes a parameter of the part that a rank updates: its reduced gradients once more, in the type
  // of the update (DeepSpeed's ZeRO-1 and -2).
  int update_gradient_bytes = 0;
  // Keys and values are repeated for every query head before attention.
  bool repeat_kv = false;
  // Selective recomputation keeps attention and every second product and runs the rest again
  // (TorchTitan's "selective op").
  bool keep_products = false;
  // Selective recomputation also runs the MLP's first product again (LLMQ's --recompute-ffn).
  bool recompute_mlp = false;
  // fp8: scales are taken from each tensor itself, which reads products' operands once more
  // (delayed and block scaling do not).
  bool current_scaling = false;
  // PyTorch's context parallelism: gradients of keys and values travel in fp32, partial results are
  // merged in single fp32 steps. Compiled (`fused`), they are merged in one pass, but a traced
  // collective is waited for where it is issued (functional collectives, 2024-25).
  bool eager_ring = false;
  // Stages hold as equal numbers of parameters as blocks allow, instead of layers (DeepSpeed's
  // partition_method "parameters").
  bool balance_parameters = false;
  // Bytes a parameter that adding a micro-batch's weight gradients to the sum moves: fused into the
  // product (read and written in fp32), or after it in passes of its own.
  int accumulate_bytes = 8;
  bool accumulate_apart = false;
  // Full recomputation ends with the last tensor that backward reads (PyTorch's checkpoints
  // from 2.1 on, this engine): a block's last product is not made again.
  bool recompute_needed = false;
  // Bytes a logit that metrics of training move beside the loss.
  int metric_bytes = 0;
  // This engine runs it: memory is replayed on its own schedule.
  bool own_engine = false;
  // Memory is laid out once: nothing is lost between blocks.
  bool arena = false;

  auto operator<=>(const ClusterStrategy&) const = default;

  int world() const { return mesh.world(); }
  int64_t accumulation() const;  // micro-batches a rank and step
  double state_bytes() const {   // a parameter, not sharded
    return weight_bytes + gradient_bytes + master_bytes + moment_bytes;
  }
};

struct ModelShape;
struct Cluster;
// Throws ConfigError with the reason and the nearest valid value: degrees that do not divide heads,
// layers or cards, batch arithmetic, stages without a layer, negative sizes, what does not combine.
void check_strategy(const ClusterStrategy& strategy,
                    const ModelShape& model,
                    const Cluster& cluster);

}  // namespace vitrine
