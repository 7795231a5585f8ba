#!/usr/bin/env python3
"""Writes tests/golden/ops.json: operations as PyTorch computes them, with their gradients.

Run with Debian's python3 and python3-torch (1.13): python3 tools/make_op_golden.py
"""
import json
import math
import os

import torch
import torch.nn.functional as F

CASES = []


def flat(tensor):
    return [float(f"{value:.8g}") for value in tensor.detach().double().flatten().tolist()]


def short(tensor):
    """Three decimals, so that the file holds the very numbers that were used."""
    return (tensor.double() * 1000).round() / 1000


def case(op, attrs, inputs, function):
    """Runs `function` in float64 and records outputs and gradients of a random projection."""
    leaves = []
    for tensor in inputs:
        tensor = short(tensor) if tensor.is_floating_point() else tensor
        leaves.append(tensor.requires_grad_() if tensor.is_floating_point() else tensor)
    result = function(*leaves)
    result = result if isinstance(result, tuple) else (result,)
    dout = [short(torch.randn(r.shape)) for r in result]
    sum((r * d).sum() for r, d in zip(result, dout)).backward()
    CASES.append({
        "op": op,
        "attrs": attrs,
        "inputs": [{"shape": list(t.shape), "ids": not t.is_floating_point(), "values": flat(t)} for t in leaves],
        "outputs": [flat(r) for r in result],
        "output_gradients": [flat(d) for d in dout],
        "input_gradients": [flat(t.grad) if t.is_floating_point() else [] for t in leaves],
    })


def split_heads(qkv, heads, kv_heads, head_dim):
    q, k, v = qkv.split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], -1)
    q, k, v = [t.unflatten(-1, (-1, head_dim)).transpose(-2, -3) for t in (q, k, v)]
    repeat = heads // kv_heads
    return q, k.repeat_interleave(repeat, -3), v.repeat_interleave(repeat, -3)


def attention(qkv, heads, kv_heads, head_dim, block):
    """qkv[B, L, (H + 2 G) d]; block 0 is not causal."""
    q, k, v = split_heads(qkv, heads, kv_heads, head_dim)
    score = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
    if block:
        place = torch.arange(qkv.shape[1]) // block
        score = score.masked_fill(place[None, :] > place[:, None], -math.inf)
    return (score.softmax(-1) @ v).transpose(-2, -3).flatten(-2)


def rotate_half(x):  # as in Hugging Face's modeling_llama.py
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotary(x, heads, head_dim, base):
    """x[B, L, heads d + rest], positions along dimension 1."""
    inverse = 1.0 / base ** (torch.arange(0, head_dim, 2).double() / head_dim)
    angle = torch.outer(torch.arange(x.shape[1]).double(), inverse)
    angle = torch.cat((angle, angle), -1)
    head = x[..., : heads * head_dim].unflatten(-1, (heads, head_dim)).transpose(1, 2)
    head = head * angle.cos() + rotate_half(head) * angle.sin()
    return torch.cat((head.transpose(1, 2).flatten(-2), x[..., heads * head_dim:]), -1)


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def qk_norm(qkv, wq, wk, heads, kv_heads, head_dim, eps):
    q, k, v = qkv.split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], -1)
    q = rms(q.unflatten(-1, (heads, head_dim)), wq, eps).flatten(-2)
    k = rms(k.unflatten(-1, (kv_heads, head_dim)), wk, eps).flatten(-2)
    return torch.cat((q, k, v), -1)


def patchify(frames, p):
    b, t, height, width, c = frames.shape
    z = frames.reshape(b, t, height // p, p, width // p, p, c).permute(0, 1, 2, 4, 3, 5, 6)
    return z.reshape(b, t, (height // p) * (width // p), p * p * c)


def main():
    torch.manual_seed(0)
    n = torch.randn
    x, w, b = n(2, 5, 24), n(24), n(24)
    case("linear", {}, [n(2, 5, 7), n(9, 7), n(9)], F.linear)
    case("layer_norm", {"eps": 1e-5}, [x, w, b], lambda x, w, b: F.layer_norm(x, (24,), w, b, 1e-5))
    case("add_layer_norm", {"eps": 1e-5}, [x, n(2, 5, 24), w, b],
         lambda x, d, w, b: (x + d, F.layer_norm(x + d, (24,), w, b, 1e-5)))
    case("rms_norm", {"eps": 1e-6}, [x, w], lambda x, w: rms(x, w, 1e-6))
    case("add_rms_norm", {"eps": 1e-6}, [x, n(2, 5, 24), w], lambda x, d, w: (x + d, rms(x + d, w, 1e-6)))
    for form, approximate in ((0, "none"), (1, "tanh")):
        case("gelu", {"form": form}, [3 * n(3, 40)], lambda x: F.gelu(x, approximate=approximate))
    case("gelu", {"form": 2}, [3 * n(3, 40)], lambda x: x * torch.sigmoid(1.702 * x))
    case("swiglu", {}, [2 * n(4, 38)], lambda x: F.silu(x[..., :19]) * x[..., 19:])
    for heads, kv_heads, d, length, block in ((2, 2, 8, 9, 1), (4, 2, 4, 17, 0), (2, 1, 5, 18, 4)):
        case("attention",
             {"heads": heads, "kv_heads": kv_heads, "head_dim": d, "axis": 1, "causal": int(block > 0),
              "causal_block": max(block, 1)},
             [n(2, length, (heads + 2 * kv_heads) * d)],
             lambda x: attention(x, heads, kv_heads, d, block))
    case("rotary", {"heads": 2, "head_dim": 8, "base": 10000, "axis": 1}, [n(2, 6, 20)],
         lambda x: rotary(x, 2, 8, 10000.0))
    case("qk_norm", {"heads": 2, "kv_heads": 1, "head_dim": 6, "eps": 1e-6}, [n(2, 3, 24), n(6), n(6)],
         lambda x, q, k: qk_norm(x, q, k, 2, 1, 6, 1e-6))
    ids = torch.tensor([[3, 0, 3], [6, 1, 3]], dtype=torch.int32)
    case("embedding", {}, [ids, n(7, 5)], lambda i, table: F.embedding(i.long(), table))
    targets = torch.tensor([1, -100, 10, 0, -100, 4], dtype=torch.int32)
    for chunk in (0, 4):
        case("linear_cross_entropy", {"chunk_rows": chunk}, [n(6, 8), n(11, 8), targets],
             lambda x, w, t: F.cross_entropy(x @ w.t(), t.long(), ignore_index=-100).reshape(1))
    case("mse", {}, [n(3, 7), n(3, 7)], lambda p, t: F.mse_loss(p, t).reshape(1))
    case("l1", {}, [n(3, 7), n(3, 7)], lambda p, t: F.l1_loss(p, t).reshape(1))
    case("patchify", {"patch": 2}, [n(2, 2, 4, 6, 3)], lambda f: patchify(f, 2))
    case("gated_sigmoid", {}, [n(2, 4, 5), n(5), n(5)], lambda z, g, o: torch.sigmoid(g * (z - 0.5) + o))
    case("add_broadcast", {"dims": 0b1010}, [n(2, 3, 2, 4), n(3, 4)], lambda x, y: x + y[None, :, None, :])
    case("frame_difference", {}, [n(2, 3, 2, 4)],
         lambda z: torch.cat((z, torch.cat((0 * z[:, :1], z[:, 1:] - z[:, :-1]), 1)), -1))
    case("mean_pool", {}, [n(2, 5, 4)], lambda x: x.mean(1))
    case("prepend_token", {}, [n(2, 3, 4), n(4)], lambda x, t: torch.cat((t.expand(2, 1, 4), x), 1))

    path = os.path.join(os.path.dirname(__file__), "..", "tests", "golden", "ops.json")
    document = {"made_by": "tools/make_op_golden.py", "torch": torch.__version__, "cases": CASES}
    with open(path + ".tmp", "w") as out:
        json.dump(document, out, separators=(",", ":"))
        out.write("\n")
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    main()
