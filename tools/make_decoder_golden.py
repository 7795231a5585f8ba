"""Writes tests/models/golden/decoder.json: losses of small decoders, computed with PyTorch in float64
from weights under their Hugging Face names, whose values are a formula of name and element.

    python3 tools/make_decoder_golden.py > tests/models/golden/decoder.json
"""
import json

import torch

TOKENS = [(7 * i + 3) % 50 for i in range(12)]
TARGETS = [(11 * i + 5) % 50 for i in range(12)]
TARGETS[4] = -1


def weight(name, *shape):
    count = 1
    for size in shape:
        count *= size
    phase = sum(name.encode()) % 97
    x = torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + phase) * 0.3
    if "norm" in name:
        x = x + 1
    return x.reshape(shape)


def rms_norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def rotate(x, theta):  # [B, T, heads, d]
    d = x.shape[-1]
    frequency = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequency
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def loss_of(c):
    d, heads, groups = c["head_dim"], c["heads"], c["kv_heads"]
    tokens = torch.tensor(TOKENS).reshape(2, 6)
    targets = torch.tensor(TARGETS)
    table = weight("model.embed_tokens.weight", c["vocab"], c["hidden"])

    def dense(x, name, rows, bias):
        y = x @ weight(name + ".weight", rows, x.shape[-1]).T
        return y + weight(name + ".bias", rows) if bias else y

    x = table[tokens]
    for i in range(c["layers"]):
        at = f"model.layers.{i}."
        h = rms_norm(x, weight(at + "input_layernorm.weight", c["hidden"]), c["rms_eps"])
        q = dense(h, at + "self_attn.q_proj", heads * d, c["qkv_bias"]).reshape(2, 6, heads, d)
        k = dense(h, at + "self_attn.k_proj", groups * d, c["qkv_bias"]).reshape(2, 6, groups, d)
        v = dense(h, at + "self_attn.v_proj", groups * d, c["qkv_bias"]).reshape(2, 6, groups, d)
        if c["qk_norm"]:
            q = rms_norm(q, weight(at + "self_attn.q_norm.weight", d), c["rms_eps"])
            k = rms_norm(k, weight(at + "self_attn.k_norm.weight", d), c["rms_eps"])
        q, k = rotate(q, c["rope_theta"]), rotate(k, c["rope_theta"])
        k = k.repeat_interleave(heads // groups, 2)
        v = v.repeat_interleave(heads // groups, 2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / d**0.5
        mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
        probability = scores.masked_fill(mask, float("-inf")).softmax(-1)
        mixed = torch.einsum("bhij,bjhd->bihd", probability, v).reshape(2, 6, heads * d)
        x = x + dense(mixed, at + "self_attn.o_proj", c["hidden"], c["o_bias"])
        h = rms_norm(x, weight(at + "post_attention_layernorm.weight", c["hidden"]), c["rms_eps"])
        gate = dense(h, at + "mlp.gate_proj", c["ffn"], c["mlp_bias"])
        up = dense(h, at + "mlp.up_proj", c["ffn"], c["mlp_bias"])
        x = x + dense(torch.nn.functional.silu(gate) * up, at + "mlp.down_proj", c["hidden"], c["mlp_bias"])
    x = rms_norm(x, weight("model.norm.weight", c["hidden"]), c["rms_eps"])
    head = table if c["tied_embeddings"] else weight("lm_head.weight", c["vocab"], c["hidden"])
    logits = (x @ head.T).reshape(12, -1)
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1).item()


BASE = dict(family="decoder", vocab=50, hidden=24, layers=2, heads=4, kv_heads=2, head_dim=8, ffn=20,
            max_positions=6, rope_theta=10000.0, rms_eps=1e-5, qkv_bias=False, o_bias=False,
            mlp_bias=False, qk_norm=False, tied_embeddings=False)
CASES = {
    "llama": {},
    "qwen2, tied": dict(qkv_bias=True, tied_embeddings=True, rope_theta=1e6),
    "qwen3, wide heads": dict(qk_norm=True, head_dim=10, kv_heads=1),
    "all biases": dict(qkv_bias=True, o_bias=True, mlp_bias=True, kv_heads=4),
}

if __name__ == "__main__":
    print(json.dumps({
        "tokens": TOKENS, "targets": TARGETS,
        "cases": [dict(name=name, model={**BASE, **case}, loss=loss_of({**BASE, **case}))
                  for name, case in CASES.items()],
    }, indent=1))
