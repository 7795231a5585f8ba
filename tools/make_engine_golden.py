"""Writes tests/run/golden/engine.json: loss, every gradient and the losses of 20 AdamW steps of a small decoder,
world model and vision transformer, computed with PyTorch in float64. Starting values are a formula of name and
element, rounded to fp32, which the test fills in too.

    python3 tools/make_engine_golden.py > tests/run/golden/engine.json
"""
import json

import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, silu

B, STEPS, LR = 3, 20, 2e-3
DECODER = dict(family="decoder", vocab=29, hidden=16, layers=2, heads=4, kv_heads=2, head_dim=4, ffn=20,
               max_positions=8, sequence_length=7, qkv_bias=True, qk_norm=True, tied_embeddings=True, rms_eps=1e-6,
               rope_theta=10000.0)
WORLD = dict(family="world_model", height=8, width=12, patch=4, hidden=16, layers=2, heads=2, head_dim=8, ffn=20,
             window=3, action_count=4, encoder="linear", encoder_width=12, head="gated_sigmoid",
             positions="learned", rollout_steps=2, rollout_weight=0.5, rms_eps=1e-6)
VIT = dict(family="vit", height=8, width=8, patch=4, hidden=16, layers=2, heads=2, ffn=24, classes=6,
           pool="class_token", gelu="erf", norm_eps=1e-6, patch_bias=True)


def noise(count, phase):
    """In [-0.5, 0.5): the fraction of a large multiple of a sine."""
    u = torch.sin(12.9898 * torch.arange(1, count + 1, dtype=torch.float64) + phase) * 43758.5453
    return u - torch.floor(u) - 0.5


class Parameters(dict):
    def get(self, name, *shape):
        if name not in self:
            count = torch.Size(shape).numel()
            last = name.split(".")[-1]
            scale = 0.5 if len(shape) == 1 else 1.6 / shape[-1] ** 0.5
            base = 1 if "norm" in last and "bias" not in last else 5 if last == "gain" else 0
            value = (base + scale * noise(count, sum(name.encode()) % 97)).float().double()
            self[name] = value.reshape(shape).requires_grad_()
        return self[name]

    def groups(self, weight_decay):
        def plain(name):
            last = name.split(".")[-1]
            return ("norm" in last or last.startswith("b") or "bias" in last or last.startswith("position")
                    or last in ("gain", "offset", "class_token"))
        return [{"params": [p for n, p in self.items() if not plain(n)], "weight_decay": weight_decay},
                {"params": [p for n, p in self.items() if plain(n)], "weight_decay": 0.0}]


def ids(step, name, count, below):
    phase = sum(name.encode()) % 97
    return torch.floor((noise(count, phase + 31 * step) + 0.5) * below).long()


def frames(step, *shape):
    count = torch.Size(shape).numel()
    return (noise(count, 7 + 31 * step) + 0.5).float().double().reshape(shape)


def rms_norm(x, w, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def attend(q, k, v, causal):  # [..., length, heads, d]
    k = k.repeat_interleave(q.shape[-2] // k.shape[-2], -2)
    v = v.repeat_interleave(q.shape[-2] // v.shape[-2], -2)
    scores = torch.einsum("...ihd,...jhd->...hij", q, k) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), float("-inf"))
    return torch.einsum("...hij,...jhd->...ihd", scores.softmax(-1), v).flatten(-2)


def rotate(x, theta):  # [B, T, heads, d]
    d = x.shape[-1]
    angle = torch.arange(x.shape[1]).double()[:, None] * theta ** (-torch.arange(0, d, 2).double() / d)
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def swiglu(p, at, x, c):
    gate, up = (x @ p.get(at + "w_gate_up", 2 * c["ffn"], c["hidden"]).T).chunk(2, -1)
    return (silu(gate) * up) @ p.get(at + "w_down", c["hidden"], c["ffn"]).T


def decoder_loss(p, step):
    c, d, h, g, n = DECODER, 4, 4, 2, 16
    tokens = ids(step, "tokens", B * 7, 29).reshape(B, 7)
    targets = ids(step, "targets", B * 7, 29)
    table = p.get("embed.table", 29, n)
    x = table[tokens]
    for i in range(c["layers"]):
        at = f"body.{i}."
        normed = rms_norm(x, p.get(at + "attn_norm", n))
        qkv = normed @ p.get(at + "wqkv", (h + 2 * g) * d, n).T + p.get(at + "bqkv", (h + 2 * g) * d)
        q, k, v = qkv.reshape(B, 7, -1, d).split([h, g, g], 2)
        q = rotate(rms_norm(q, p.get(at + "q_norm", d)), c["rope_theta"])
        k = rotate(rms_norm(k, p.get(at + "k_norm", d)), c["rope_theta"])
        x = x + attend(q, k, v, True) @ p.get(at + "wo", n, h * d).T
        x = x + swiglu(p, at, rms_norm(x, p.get(at + "mlp_norm", n)), c)
    return cross_entropy((rms_norm(x, p.get("head.norm", n)) @ table.T).reshape(-1, 29), targets)


def patches(x, size):  # [..., Y, X, 3] -> [..., S, size * size * 3]
    *lead, y, w, _ = x.shape
    x = x.reshape(*lead, y // size, size, w // size, size, 3).transpose(-4, -3)
    return x.reshape(*lead, (y // size) * (w // size), size * size * 3)


def world_pass(p, window, actions):  # [B, T, S, C], [B, T] -> the next frames
    c, n, t, s, values = WORLD, 16, 3, 6, 48
    e = gelu(window @ p.get("stem.w_encode", 12, values).T + p.get("stem.b_encode", 12))
    before = torch.cat([e[:, :1], e[:, :-1]], 1)
    x = torch.cat([e, e - before], -1) @ p.get("stem.w_in", n, 24).T
    x = x + p.get("stem.position_space", s, n) + p.get("stem.position_time", t, n)[:, None]
    x = x + p.get("stem.actions", 4, n)[actions][:, :, None]
    for i in range(c["layers"]):
        at = f"body.{i}."
        for axis in ("space", "time"):
            normed = rms_norm(x, p.get(at + axis + "_norm", n))
            qkv = (normed @ p.get(at + axis + "_wqkv", 48, n).T).reshape(B, t, s, 6, 8)
            if axis == "time":
                qkv = qkv.transpose(1, 2)
            mixed = attend(*qkv.split(2, -2), axis == "time")
            if axis == "time":
                mixed = mixed.transpose(1, 2)
            x = x + mixed @ p.get(at + axis + "_wo", n, 16).T
        x = x + swiglu(p, at, rms_norm(x, p.get(at + "mlp_norm", n)), c)
    z = window + rms_norm(x, p.get("predict.norm", n)) @ p.get("predict.w_out", values, n).T
    return torch.sigmoid(p.get("predict.gain", values) * (z - 0.5) + p.get("predict.offset", values))


def world_loss(p, step):
    t = 3
    z = patches(frames(step, B, t + 2, 8, 12, 3), 4)
    actions = ids(step, "actions", B * (t + 2), 4).reshape(B, t + 2)
    first = world_pass(p, z[:, :t], actions[:, :t])
    # The last prediction enters the window as a frame.
    moved = torch.cat([z[:, 1:t], first[:, -1:]], 1)
    second = world_pass(p, moved, actions[:, 1:t + 1])
    losses = ((first - z[:, 1:t + 1]) ** 2).mean(), ((second - z[:, 2:t + 2]) ** 2).mean()
    return (losses[0] + 0.5 * losses[1]) / 1.5


def vit_loss(p, step):
    n, values = 16, 48

    def norm(x, name):
        return layer_norm(x, (n,), p.get(name, n), p.get(name + "_bias", n), 1e-6)

    def dense(x, at, suffix, rows):
        return x @ p.get(f"{at}w{suffix}", rows, x.shape[-1]).T + p.get(f"{at}b{suffix}", rows)

    x = dense(patches(frames(step, B, 8, 8, 3), 4), "stem.", "_patch", n)
    x = torch.cat([p.get("stem.class_token", n).expand(B, 1, n), x], 1) + p.get("stem.position", 5, n)
    for i in range(2):
        at = f"body.{i}."
        qkv = dense(norm(x, at + "attn_norm"), at, "qkv", 3 * n).reshape(B, 5, 6, 8)
        x = x + dense(attend(*qkv.split(2, 2), False), at, "o", n)
        x = x + dense(gelu(dense(norm(x, at + "mlp_norm"), at, "_up", 24)), at, "_down", n)
    logits = norm(x, "head.norm")[:, 0] @ p.get("head.weight", 6, n).T
    return cross_entropy(logits, ids(step, "labels", B, 6))


def case(model, loss_of):
    p = Parameters()
    loss_of(p, 0).backward()
    gradients = {name: [float(f"{v:.9g}") for v in value.grad.flatten().tolist()] for name, value in p.items()}
    optimizer = torch.optim.AdamW(p.groups(0.1), lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(p, step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses, "gradients": gradients}


cases = [case(DECODER, decoder_loss), case(WORLD, world_loss), case(VIT, vit_loss)]
print(json.dumps({"micro_batch": B, "lr": LR, "weight_decay": 0.1, "clip": 1.0, "cases": cases}))
