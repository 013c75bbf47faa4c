"""Layers and losses by PyTorch, recorded for the tests of package ampc:
python3 bench/torch/layers.py > testdata/torch_layers.json

Every operand is fill(shape, k), in ampc's layout; a case has the result and the gradient by operand 0 of the
sum of result·fill(result's shape, 50)."""
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def fill(shape, k):
    n = 1
    for d in shape:
        n *= d
    i = torch.arange(n)
    return (((i * 37 + k * 11 + i * i * 13) % 101).double() / 101 - 0.5).reshape(shape)


def load(module, **named):
    state = module.state_dict()
    assert set(state) == set(named), (sorted(state), sorted(named))
    module.load_state_dict(named)
    return module


def attention(prefix, dim, k):
    return {prefix + "in_proj_weight": fill([dim, 3 * dim], k).T, prefix + "in_proj_bias": fill([3 * dim], k + 1),
            prefix + "out_proj.weight": fill([dim, dim], k + 2).T, prefix + "out_proj.bias": fill([dim], k + 3)}


def cross(prefix, dim, k):
    return {prefix + "in_proj_weight": torch.cat([fill([dim, dim], k + 2 * i).T for i in range(3)]),
            prefix + "in_proj_bias": torch.cat([fill([dim], k + 2 * i + 1) for i in range(3)]),
            prefix + "out_proj.weight": fill([dim, dim], k + 6).T, prefix + "out_proj.bias": fill([dim], k + 7)}


def feed(dim, hidden, k):
    return {"linear1.weight": fill([dim, hidden], k).T, "linear1.bias": fill([hidden], k + 1),
            "linear2.weight": fill([hidden, dim], k + 2).T, "linear2.bias": fill([dim], k + 3)}


def norms(n, dim, k):
    return {f"norm{i + 1}.{w}": fill([dim], k + 2 * i + j) for i in range(n) for j, w in enumerate(["weight", "bias"])}


def encoder(**kw):
    m = nn.TransformerEncoderLayer(8, 2, 12, dropout=0, batch_first=True, **kw)
    return load(m, **attention("self_attn.", 8, 1), **feed(8, 12, 20), **norms(2, 8, 30))


def decoder(x):
    m = nn.TransformerDecoderLayer(8, 2, 12, dropout=0, batch_first=True)
    load(m, **attention("self_attn.", 8, 1), **cross("multihead_attn.", 8, 10), **feed(8, 12, 20), **norms(3, 8, 30))
    return m(x, fill([2, 3, 8], 9), tgt_mask=nn.Transformer.generate_square_subsequent_mask(5), tgt_is_causal=True)


def rotary(x):  # Llama's half-split form, written out
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def rope_attention(x):
    q, k, v = [t.reshape(2, 5, 2, 4).transpose(1, 2) for t in (x @ fill([8, 24], 1) + fill([24], 2)).split(8, -1)]
    y = F.scaled_dot_product_attention(rotary(q), rotary(k), v, is_causal=True)
    return y.transpose(1, 2).reshape(2, 5, 8) @ fill([8, 8], 3) + fill([8], 4)


def focal(x, t, alpha, gamma):  # torchvision.ops.sigmoid_focal_loss, its source
    p = torch.sigmoid(x)
    ce = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    loss = ce * (1 - (p * t + (1 - p) * (1 - t))) ** gamma
    if alpha >= 0:
        loss = (alpha * t + (1 - alpha) * (1 - t)) * loss
    return loss.mean()


labels = torch.tensor([2, 0, -100, 3])
zero_one = (fill([4, 6], 3) > 0).double()
CASES = {
    "conv1d": ([2, 4, 9], lambda x: F.conv1d(x, fill([6, 2, 3], 1), fill([6], 2), stride=2, padding=1, dilation=2, groups=2)),
    "conv3d": ([1, 2, 4, 5, 4], lambda x: F.conv3d(x, fill([3, 2, 3, 3, 3], 1), fill([3], 2), stride=2, padding=1)),
    "max_pool2d": ([2, 2, 7, 8], lambda x: F.max_pool2d(x, 3, stride=2, padding=1)),
    "avg_pool2d": ([2, 2, 7, 8], lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)),
    "adaptive_avg_pool2d": ([2, 2, 7, 10], lambda x: F.adaptive_avg_pool2d(x, (3, 4))),
    "adaptive_max_pool2d": ([2, 2, 7, 10], lambda x: F.adaptive_max_pool2d(x, (3, 4))),
    "adaptive_max_pool1d": ([2, 2, 8], lambda x: F.adaptive_max_pool1d(x, 4)),
    "instance_norm": ([2, 3, 4, 5], lambda x: F.instance_norm(x)),
    "instance_norm_affine": ([2, 3, 4, 5], lambda x: load(nn.InstanceNorm2d(3, affine=True), weight=fill([3], 1), bias=fill([3], 2))(x)),
    "encoder": ([2, 5, 8], encoder()),
    "encoder_first_gelu": ([2, 5, 8], encoder(norm_first=True, activation="gelu")),
    "decoder": ([2, 5, 8], decoder),
    "rope_attention": ([2, 5, 8], rope_attention),
    "cross_entropy_each": ([4, 6], lambda x: F.cross_entropy(x, labels, reduction="none")),
    "bce_each": ([4, 6], lambda x: F.binary_cross_entropy_with_logits(x * 9, zero_one, reduction="none")),
    "focal": ([4, 6], lambda x: focal(x * 4, zero_one, 0.25, 2)),
    "focal_plain": ([4, 6], lambda x: focal(x * 4, zero_one, -1, 1.5)),
    "triplet": ([4, 6], lambda x: F.triplet_margin_loss(x, fill([4, 6], 1), fill([4, 6], 2), margin=0.4)),
    "cosine_similarity": ([4, 6], lambda x: F.cosine_similarity(x, fill([4, 6], 1), dim=1)),
    "cosine_embedding": ([4, 6], lambda x: F.cosine_embedding_loss(x, fill([4, 6], 1), torch.tensor([1, -1, -1, 1]), margin=-0.5)),
}
out = {}
for name, (shape, f) in CASES.items():
    x = fill(shape, 0).requires_grad_()
    y = f(x)
    (y * fill(list(y.shape) or [1], 50).reshape(y.shape)).sum().backward()
    out[name] = {"result": y.detach().flatten().tolist(), "gradient": x.grad.flatten().tolist()}
print(json.dumps(out))
