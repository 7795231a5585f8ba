"""Writes tests/models/golden/vit.json: the classification loss of a small CLIP-shaped vision tower,
computed with PyTorch in float64 from weights under their Hugging Face names (formula of name and element).

    python3 tools/make_vit_golden.py > tests/models/golden/vit.json
"""
import json

import torch
from torch.nn.functional import conv2d, cross_entropy, layer_norm

from make_decoder_golden import weight

MODEL = dict(family="vit", height=4, width=6, patch=2, hidden=12, layers=2, heads=3, ffn=20, classes=5,
             gelu="quick", norm_eps=1e-5, patch_bias=False, pre_norm=True)
LABELS = [1, 4]
D = MODEL["hidden"]


def norm(x, name):
    # "norm" puts 1 into weights; biases start from 0.
    return layer_norm(x, (D,), weight(name + ".weight", D), weight(name + ".bias", D) - 1, 1e-5)


def dense(x, name, rows):
    return x @ weight(name + ".weight", rows, x.shape[-1]).T + weight(name + ".bias", rows)


def frames():
    count = 2 * 4 * 6 * 3
    return (torch.arange(count, dtype=torch.float64) * 0.37 % 1).reshape(2, 4, 6, 3)


v = "vision_model."
x = conv2d(frames().permute(0, 3, 1, 2), weight(v + "embeddings.patch_embedding.weight", D, 3, 2, 2), stride=2)
x = x.flatten(2).transpose(1, 2)
token = weight(v + "embeddings.class_embedding", D).expand(2, 1, D)
x = torch.cat([token, x], 1) + weight(v + "embeddings.position_embedding.weight", 7, D)
x = norm(x, v + "pre_layrnorm")
for i in range(MODEL["layers"]):
    at = f"{v}encoder.layers.{i}."
    h = norm(x, at + "layer_norm1")
    q, k, value = (dense(h, f"{at}self_attn.{p}_proj", D).reshape(2, 7, 3, 4) for p in "qkv")
    p = (torch.einsum("bihd,bjhd->bhij", q, k) / 2).softmax(-1)
    mixed = torch.einsum("bhij,bjhd->bihd", p, value).reshape(2, 7, D)
    x = x + dense(mixed, at + "self_attn.out_proj", D)
    h = dense(norm(x, at + "layer_norm2"), at + "mlp.fc1", MODEL["ffn"])
    x = x + dense(h * torch.sigmoid(1.702 * h), at + "mlp.fc2", D)
pooled = norm(x[:, 0], v + "post_layernorm")
loss = cross_entropy(pooled @ weight("head.weight", MODEL["classes"], D).T, torch.tensor(LABELS))
print(json.dumps({"model": MODEL, "labels": LABELS, "loss": loss.item()}, indent=1))
