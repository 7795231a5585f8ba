"""What the GPU peers share: layers, precision, sharding, the timed loop and the line that they print.

The peers do what `vitrine bench step` does in a step: the batch comes from host memory, gradients are clipped to norm 1,
fused AdamW updates fp32 master weights, and the host waits for the end. Blocks and ends are compiled one by one.
PyTorch 1.13 is enough for `--device cpu`, which checks the scripts and nothing else.
"""
import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    """In fp32, rounded back to the input's dtype; compiled, it is one pass."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()).to(x.dtype)


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


def attend(q, k, v, causal):
    """[N, H, T, d], with fewer heads in k and v where they are shared."""
    shared = q.shape[1] != k.shape[1]
    if hasattr(F, "scaled_dot_product_attention"):
        more = {"enable_gqa": True} if shared else {}
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **more)
    if shared:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores + torch.full(scores.shape[-2:], float("-inf"), device=q.device).triu(1)
    return torch.softmax(scores, -1) @ v


def rotary_table(length, head_dim, theta, device):
    angle = torch.outer(torch.arange(length, device=device).float(),
                        theta ** (-torch.arange(0, head_dim, 2, device=device).float() / head_dim))
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def arguments(description, sizes):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--size", choices=sizes)
    parser.add_argument("--tiny", action="store_true", help="the size tiny")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--dtype", choices=["bf16", "f32"], help="of the computation (default: bf16, on the CPU f32)")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024, help="tokens of a sample, for decoders")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--stage", type=int, choices=[0, 1, 2, 3], default=0,
                        help="0: DDP; 1-3: FSDP2, reducing once a step (1) or each micro-batch (2), freeing weights after forward (3)")
    parser.add_argument("--reduce-dtype", choices=["f32", "bf16"], default="f32", help="of reduced gradients, with FSDP2")
    parser.add_argument("--attention", choices=["auto", "cudnn", "flash"], default="auto")
    parser.add_argument("--clip", type=float, default=1.0, help="norm of gradients; 0 = no clipping")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    args = parser.parse_args()
    if args.tiny:
        args.size = "tiny"
    if args.size is None:
        parser.error("give --size or --tiny")
    args.dtype = args.dtype or ("bf16" if args.device == "cuda" else "f32")
    args.rank, args.ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if args.device == "cpu" and args.ranks > 1:
        parser.error("--device cpu is for one process")
    return args


def start(args):
    """The device of this process; joins the group when there are several."""
    torch.manual_seed(0)
    if args.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high" if args.dtype == "bf16" else "highest")
    if args.ranks > 1:
        torch.distributed.init_process_group("nccl", device_id=device)
    return device


def prepare(model, blocks, ends, args, device):
    """Compiles and shards; returns what is called in place of `model`. `blocks` is sharded one by one."""
    if args.device == "cuda" and not args.eager:
        for module in [*blocks, *ends]:
            module.compile()
    if args.ranks == 1:
        return model
    if args.stage == 0:
        return nn.parallel.DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    narrow = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=narrow,
                                  reduce_dtype=torch.bfloat16 if args.reduce_dtype == "bf16" else torch.float32)
    for block in blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=args.stage == 3)
    fully_shard(model, mp_policy=policy, reshard_after_forward=False)
    return model


def optimizer_of(model, args):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=3e-4, betas=(0.9, 0.95),
                             **({"fused": True} if args.device == "cuda" else {}))


def attention_choice(args):
    if args.attention == "auto" or args.device == "cpu":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION if args.attention == "cudnn" else SDPBackend.FLASH_ATTENTION)


class Accumulation:
    """Says before each micro-batch whether gradients are exchanged after it."""

    def __init__(self, net, args):
        self.net, self.args = net, args
        self.fsdp = hasattr(net, "set_requires_gradient_sync")
        self.ddp = args.ranks > 1 and args.stage == 0

    def micro_batch(self, last):
        if self.fsdp and self.args.accumulate > 1:
            if self.args.stage == 1:
                self.net.set_requires_gradient_sync(last)
            if self.args.stage < 3:  # weights stay in full until the update
                self.net.set_reshard_after_backward(last)
        return self.net.no_sync() if self.ddp and not last else contextlib.nullcontext()


def measure(name, model, net, batch, units, args, device):
    """Times steps of `net(*batch)`, which gives the loss; rank 0 prints one JSON line.

    `batch` is in host memory; `units` of a micro-batch of one rank."""
    cuda = args.device == "cuda"
    if cuda:
        batch = [t.pin_memory() for t in batch]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()  # making the whole model on every GPU is no part of training
    optimizer, accumulation = optimizer_of(model, args), Accumulation(net, args)
    autocast = args.dtype == "bf16" and not accumulation.fsdp
    times, begin = [], time.perf_counter()
    for step in range(args.warmup + args.steps):
        start_time = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for micro in range(args.accumulate):
            there = [t.to(device, non_blocking=True) for t in batch]
            with accumulation.micro_batch(micro + 1 == args.accumulate):
                with torch.autocast(args.device, torch.bfloat16, enabled=autocast), attention_choice(args):
                    loss = net(*there) / args.accumulate
                loss.backward()
        if args.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if cuda:
            torch.cuda.synchronize()
        if step == 0:
            first = time.perf_counter() - begin
        if step >= args.warmup:
            times.append((time.perf_counter() - start_time) * 1e3)
    if args.rank == 0:
        middle = statistics.median(times)
        print(json.dumps({
            "model": name, "size": args.size, "torch": torch.__version__, "ranks": args.ranks, "stage": args.stage,
            "dtype": args.dtype, "reduce_dtype": args.reduce_dtype, "attention": args.attention, "compiled": cuda and not args.eager,
            "micro_batch": args.micro_batch, "accumulation": args.accumulate, "steps": args.steps,
            "median_ms": middle, "minimum_ms": min(times),
            "units_per_second": units * args.accumulate * args.ranks / middle * 1e3,
            "loss": loss.item() * args.accumulate,
            "peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
            "reserved_bytes": torch.cuda.max_memory_reserved() if cuda else 0,
            "first_step_seconds": first}), flush=True)
    if args.ranks > 1:
        torch.distributed.destroy_process_group()
