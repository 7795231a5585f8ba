#!/usr/bin/env python3
"""A training step of the video world model in PyTorch, as a peer of `vitrine bench step --model world --device gpu`.

  python3 bench/peers/gpu/torch_world.py --size small --micro-batch 32
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

import peer

# side, patch, width, layers, heads, window, normalised queries and keys with rotary times
SIZES = {"tiny": (24, 4, 64, 2, 2, 4, False),
         "demo": (64, 8, 96, 4, 3, 8, False),
         "small": (128, 8, 640, 16, 10, 16, True),
         "1b": (256, 16, 1792, 20, 14, 16, True)}
ACTIONS = 5


class Attention(nn.Module):
    """Over the last axis but one of [N, T, D]."""

    def __init__(self, width, heads, causal, normalised, rotary):
        super().__init__()
        self.heads, self.head_dim, self.causal = heads, width // heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.q_norm = peer.RMSNorm(self.head_dim) if normalised else None
        self.k_norm = peer.RMSNorm(self.head_dim) if normalised else None
        self.rotary = rotary is not None
        if self.rotary:
            self.register_buffer("cos", rotary[0], persistent=False)
            self.register_buffer("sin", rotary[1], persistent=False)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, self.head_dim).unbind(2)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        if self.rotary:
            q, k = (peer.rotate(y, self.cos, self.sin) for y in (q, k))
        return self.out(peer.attend(q, k, v, self.causal).transpose(1, 2).reshape(n, t, -1))


class Block(nn.Module):
    """Attention over the places of a frame, causal attention over times, MLP; x is [B, T, S, D]."""

    def __init__(self, width, heads, hidden, normalised, rotary):
        super().__init__()
        self.n1, self.n2, self.n3 = (peer.RMSNorm(width) for _ in range(3))
        self.space = Attention(width, heads, False, normalised, None)
        self.time = Attention(width, heads, True, normalised, rotary)
        self.mlp = peer.Mlp(width, hidden)

    def forward(self, x):
        b, t, s, d = x.shape
        x = x + self.space(self.n1(x).view(b * t, s, d)).view(b, t, s, d)
        times = self.n2(x).transpose(1, 2).reshape(b * s, t, d)
        x = x + self.time(times).view(b, s, t, d).transpose(1, 2)
        return x + self.mlp(self.n3(x))


class Stem(nn.Module):
    """Frames and actions to tokens [B, T, S, D], with the window and the targets [B, T, S, C]."""

    def __init__(self, side, patch, width, window, rotary, narrow):
        super().__init__()
        self.patch, self.narrow = patch, narrow
        values, places = 3 * patch * patch, (side // patch) ** 2
        self.w_in = nn.Linear(2 * values, width, bias=False)
        self.space = nn.Parameter(torch.zeros(places, width))
        self.time = None if rotary else nn.Parameter(torch.zeros(window, width))
        self.actions = nn.Embedding(ACTIONS, width)

    def forward(self, frames, actions):
        b, t, h, w, c = frames.shape
        p = self.patch
        z = frames.view(b, t, h // p, p, w // p, p, c).transpose(3, 4).reshape(b, t, -1, p * p * c).to(self.narrow)
        window, target = z[:, :-1], z[:, 1:]
        previous = torch.cat((window[:, :1], window[:, :-1]), 1)
        x = self.w_in(torch.cat((window, window - previous), -1)) + self.space
        if self.time is not None:
            x = x + self.time[:, None]
        return (x + self.actions(actions[:, :-1])[:, :, None]).to(self.narrow), window, target


class Predict(nn.Module):
    def __init__(self, width, values):
        super().__init__()
        self.norm, self.w_out = peer.RMSNorm(width), nn.Linear(width, values, bias=False)
        self.gain, self.offset = nn.Parameter(torch.full((values,), 6.0)), nn.Parameter(torch.zeros(values))

    def forward(self, x, window, target):
        z = window + self.w_out(self.norm(x))
        prediction = torch.sigmoid(self.gain.float() * (z.float() - 0.5) + self.offset.float())
        return F.mse_loss(prediction, target.float())


class World(nn.Module):
    def __init__(self, size, narrow, device):
        super().__init__()
        side, patch, width, layers, heads, window, large = SIZES[size]
        self.frames, self.side = window, side
        rotary = peer.rotary_table(window, width // heads, 1e4, device) if large else None
        hidden = (width * 8 // 3 + 15) // 16 * 16
        self.stem = Stem(side, patch, width, window, large, narrow)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, large, rotary) for _ in range(layers))
        self.predict = Predict(width, 3 * patch * patch)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=(0.4 / width) ** 0.5)
        nn.init.zeros_(self.predict.w_out.weight)

    def forward(self, frames, actions):
        x, window, target = self.stem(frames, actions)
        for block in self.blocks:
            x = block(x)
        return self.predict(x, window, target)


def main():
    args = peer.arguments(__doc__, list(SIZES))
    device = peer.start(args)
    narrow = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    model = World(args.size, narrow, device).to(device)
    net = peer.prepare(model, list(model.blocks), [model.stem, model.predict], args, device)
    batch = [torch.rand(args.micro_batch, model.frames + 1, model.side, model.side, 3),
             torch.randint(0, ACTIONS, (args.micro_batch, model.frames + 1))]
    peer.measure("world", model, net, batch, args.micro_batch * model.frames, args, device)


if __name__ == "__main__":
    main()
