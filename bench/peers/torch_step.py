#!/usr/bin/env python3
"""A training step of the same models in PyTorch (1.13 or later), as a peer of `vitrine bench step`.

  OPENBLAS_CORETYPE=SkylakeX python3 bench/peers/torch_step.py decoder --threads 2 --steps 20
"""
import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def attend(q, k, v, mask):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ v


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Attention(nn.Module):
    def __init__(self, width, heads, head_dim):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, width, bias=False)

    def forward(self, x, mask=None, rotary=None):
        *lead, length, _ = x.shape
        qkv = self.qkv(x).view(*lead, length, 3, self.heads, self.head_dim)
        q, k, v = (t.transpose(-2, -3) for t in qkv.unbind(-3))
        if rotary is not None:
            cos, sin = rotary
            turn = lambda t: torch.cat((t[..., : self.head_dim // 2] * cos - t[..., self.head_dim // 2:] * sin,
                                        t[..., self.head_dim // 2:] * cos + t[..., : self.head_dim // 2] * sin), -1)
            q, k = turn(q), turn(k)
        y = attend(q, k, v, mask).transpose(-2, -3).reshape(*lead, length, -1)
        return self.out(y)


class Decoder(nn.Module):
    """4 layers, width 256, 4 heads, SwiGLU 688, vocabulary 8192, tied embeddings."""

    def __init__(self, vocab=8192, width=256, layers=4, heads=4, hidden=688, length=256):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([RMSNorm(width), Attention(width, heads, width // heads), RMSNorm(width), Mlp(width, hidden)])
            for _ in range(layers))
        self.norm = RMSNorm(width)
        head_dim = width // heads
        angle = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        self.rotary = (angle.cos(), angle.sin())
        self.mask = torch.full((length, length), float("-inf")).triu(1)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        for n1, attention, n2, mlp in self.blocks:
            x = x + attention(n1(x), self.mask, self.rotary)
            x = x + mlp(n2(x))
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class World(nn.Module):
    """64x64x3 frames, patch 8, width 96, 4 layers, 3 heads of 32, window of 8: the `demo` size."""

    def __init__(self, image=64, patch=8, width=96, layers=4, heads=3, head_dim=32, window=8, actions=5):
        super().__init__()
        self.patch, self.window = patch, window
        values, places = 3 * patch * patch, (image // patch) ** 2
        hidden = 2 * width * 4 // 3
        self.w_in = nn.Linear(2 * values, width, bias=False)
        self.space, self.time = nn.Parameter(torch.zeros(places, width)), nn.Parameter(torch.zeros(window, width))
        self.actions = nn.Embedding(actions, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([RMSNorm(width), Attention(width, heads, head_dim), RMSNorm(width),
                           Attention(width, heads, head_dim), RMSNorm(width), Mlp(width, hidden)])
            for _ in range(layers))
        self.norm, self.w_out = RMSNorm(width), nn.Linear(width, values, bias=False)
        self.gain, self.offset = nn.Parameter(torch.full((values,), 6.0)), nn.Parameter(torch.zeros(values))
        self.mask = torch.full((window, window), float("-inf")).triu(1)
        nn.init.zeros_(self.w_out.weight)

    def forward(self, frames, actions):
        b, t, h, w, c = frames.shape
        p = self.patch
        z = frames.view(b, t, h // p, p, w // p, p, c).transpose(3, 4).reshape(b, t, -1, p * p * c)
        window, target = z[:, :-1], z[:, 1:]
        previous = torch.cat((window[:, :1], window[:, :-1]), 1)
        x = self.w_in(torch.cat((window, window - previous), -1))
        x = x + self.space + self.time[:, None] + self.actions(actions[:, :-1])[:, :, None]
        for n1, space, n2, time_attention, n3, mlp in self.blocks:
            x = x + space(n1(x))
            x = x + time_attention(n2(x).transpose(1, 2), self.mask).transpose(1, 2)
            x = x + mlp(n3(x))
        out = torch.sigmoid(self.gain * (window + self.w_out(self.norm(x)) - 0.5) + self.offset)
        return F.mse_loss(out, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=["decoder", "world"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batch", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    if args.model == "decoder":
        model = Decoder()
        batch = (torch.randint(0, 8192, (args.micro_batch, 256)), torch.randint(0, 8192, (args.micro_batch, 256)))
    else:
        model = World()
        batch = (torch.rand(args.micro_batch, 9, 64, 64, 3), torch.randint(0, 5, (args.micro_batch, 9)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    times = []
    for step in range(args.steps + 3):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = model(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step >= 3:
            times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"model": args.model, "torch": torch.__version__, "threads": args.threads, "parameters": parameters,
                      "median_ms": times[len(times) // 2], "minimum_ms": times[0]}))


if __name__ == "__main__":
    main()
