#!/usr/bin/env python3
"""A training step of Qwen2.5-shaped decoders in PyTorch, as a peer of `vitrine bench step --model decoder --device gpu`.

  python3 bench/peers/gpu/torch_decoder.py --size 1.5b --micro-batch 16
  torchrun --standalone --nproc-per-node 2 bench/peers/gpu/torch_decoder.py --size 7b --micro-batch 8 --stage 3
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import peer

# vocabulary, width, layers, heads, heads of keys, MLP, bias of Q K V, tied embeddings, theta
SIZES = {"tiny": (8192, 256, 4, 4, 4, 688, False, True, 1e4),
         "0.5b": (151936, 896, 24, 14, 2, 4864, True, True, 1e6),
         "1.5b": (151936, 1536, 28, 12, 2, 8960, True, True, 1e6),
         "7b": (152064, 3584, 28, 28, 4, 18944, True, False, 1e6)}


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, bias, rotary):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.head_dim, bias=bias)
        self.out = nn.Linear(width, width, bias=False)
        # Buffers, not inputs: FSDP2 would round inputs to bf16.
        self.register_buffer("cos", rotary[0], persistent=False)
        self.register_buffer("sin", rotary[1], persistent=False)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(x).view(b, t, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv_heads, self.kv_heads), 1)
        q, k = (peer.rotate(y, self.cos, self.sin) for y in (q, k))
        return self.out(peer.attend(q, k, v, causal=True).transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, bias, rotary):
        super().__init__()
        self.n1, self.n2 = peer.RMSNorm(width), peer.RMSNorm(width)
        self.attention, self.mlp = Attention(width, heads, kv_heads, bias, rotary), peer.Mlp(width, hidden)

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = peer.RMSNorm(width)

    def forward(self, x, weight, targets):
        logits = F.linear(self.norm(x), weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Decoder(nn.Module):
    def __init__(self, size, length, narrow, device):
        super().__init__()
        vocab, width, layers, heads, kv_heads, hidden, bias, tied, theta = SIZES[size]
        self.vocab, self.narrow = vocab, narrow
        self.table = nn.Embedding(vocab, width)
        rotary = peer.rotary_table(length, width // heads, theta, device)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, hidden, bias, rotary) for _ in range(layers))
        self.head = Head(width)
        self.weight = None if tied else nn.Parameter(torch.empty(vocab, width))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens).to(self.narrow)  # the residual stream is narrow, as it is in ours
        for block in self.blocks:
            x = block(x)
        return self.head(x, self.table.weight if self.weight is None else self.weight, targets)


def main():
    args = peer.arguments(__doc__, list(SIZES))
    if args.size == "tiny":
        args.sequence = min(args.sequence, 256)
    device = peer.start(args)
    narrow = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    model = build(args, narrow, device)
    net = peer.prepare(model, list(model.blocks), [model.head], args, device)
    batch = [torch.randint(0, model.vocab, (args.micro_batch, args.sequence)) for _ in range(2)]
    peer.measure("decoder", model, net, batch, args.micro_batch * args.sequence, args, device)


def build(args, narrow, device):
    if device.type == "cpu":
        return Decoder(args.size, args.sequence, narrow, device)
    with device:
        return Decoder(args.size, args.sequence, narrow, device)


if __name__ == "__main__":
    main()
