"""Computes the architectures of package pretrained in PyTorch: python3 pretrained.py FILE, a safetensors file with
models 0, 1 and so on: weights as 0/NAME by their published names, inputs as 0/in.NAME, kind and configuration as
metadata. The last line printed is the results as a JSON list of lists. Written from the papers and the models' documentation, not from package pretrained.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

ACT = {"gelu_new": lambda x: F.gelu(x, approximate="tanh"), "gelu": F.gelu, "silu": F.silu, "relu": F.relu}


def load(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), bytearray(f.read())
    kinds = {"F32": torch.float32, "I32": torch.int32}
    meta, out = header.pop("__metadata__"), {}
    for name, t in header.items():
        a, b = t["data_offsets"]
        out[name] = torch.frombuffer(data[a:b], dtype=kinds[t["dtype"]]).reshape(t["shape"])
    return meta, out


def norm(w, name, x, eps):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)


def lin(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def split(x, n):
    b, t, c = x.shape
    return x.view(b, t, n, c // n).transpose(1, 2)


def join(x):
    return x.transpose(1, 2).flatten(2)


def attend(q, k, v, mask):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return join(torch.softmax(s.masked_fill(mask, float("-inf")), -1) @ v)


def after(t):
    return torch.ones(t, t).triu(1).bool()


def gpt2(c, w):
    ids = w["in.ids"].long()
    conv = lambda name, x: x @ w[name + ".weight"] + w[name + ".bias"]
    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for i in range(c["n_layer"]):
        p = f"h.{i}."
        q, k, v = conv(p + "attn.c_attn", norm(w, p + "ln_1", x, c["layer_norm_epsilon"])).chunk(3, -1)
        n = c["n_head"]
        x = x + conv(p + "attn.c_proj", attend(split(q, n), split(k, n), split(v, n), after(ids.shape[1])))
        x = x + conv(p + "mlp.c_proj", ACT[c["activation_function"]](conv(p + "mlp.c_fc", norm(w, p + "ln_2", x, c["layer_norm_epsilon"]))))
    return norm(w, "ln_f", x, c["layer_norm_epsilon"]) @ w.get("lm_head.weight", w["wte.weight"]).T


def bert(c, w):
    ids, eps = w["in.ids"].long(), c["layer_norm_eps"]
    e = "bert.embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][: ids.shape[1]]
    x = norm(w, e + "LayerNorm", x + w[e + "token_type_embeddings.weight"][w["in.types"].long()], eps)
    mask = (w["in.mask"] == 0)[:, None, None, :]
    for i in range(c["num_hidden_layers"]):
        p = f"bert.encoder.layer.{i}."
        q, k, v = (split(lin(w, p + "attention.self." + n, x), c["num_attention_heads"]) for n in ("query", "key", "value"))
        x = norm(w, p + "attention.output.LayerNorm", x + lin(w, p + "attention.output.dense", attend(q, k, v, mask)), eps)
        y = lin(w, p + "output.dense", ACT[c["hidden_act"]](lin(w, p + "intermediate.dense", x)))
        x = norm(w, p + "output.LayerNorm", x + y, eps)
    if "classifier.weight" in w:
        return lin(w, "classifier", torch.tanh(lin(w, "bert.pooler.dense", x[:, 0])))
    p = "cls.predictions."
    x = norm(w, p + "transform.LayerNorm", ACT[c["hidden_act"]](lin(w, p + "transform.dense", x)), eps)
    return x @ w[e + "word_embeddings.weight"].T + w[p + "bias"]


def rates(c, dim):
    inv = c["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    s = c.get("rope_scaling")
    if not s:
        return inv
    if s["rope_type"] == "linear":
        return inv / s["factor"]
    old, low, high = s["original_max_position_embeddings"], s["low_freq_factor"], s["high_freq_factor"]
    out = []
    for f in inv.tolist():
        length = 2 * math.pi / f
        if length > old / low:
            f = f / s["factor"]
        elif length >= old / high:
            smooth = (old / length - low) / (high - low)
            f = (1 - smooth) * f / s["factor"] + smooth * f
        out.append(f)
    return torch.tensor(out, dtype=torch.float64)


def llama(c, w):
    ids = w["in.ids"].long()
    t, dim, n, kv = ids.shape[1], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
    rms = lambda name, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[name + ".weight"]
    angle = torch.outer(torch.arange(t, dtype=torch.float64), rates(c, dim))
    cos, sin = (torch.cat([f(angle)] * 2, -1).float() for f in (torch.cos, torch.sin))
    turn = lambda x: x * cos + torch.cat([-x[..., dim // 2:], x[..., : dim // 2]], -1) * sin
    x = w["model.embed_tokens.weight"][ids]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms(p + "input_layernorm", x)
        q, k, v = (split(lin(w, p + f"self_attn.{a}_proj", h), m) for a, m in (("q", n), ("k", kv), ("v", kv)))
        k, v = (a.repeat_interleave(n // kv, 1) for a in (turn(k), v))
        x = x + lin(w, p + "self_attn.o_proj", attend(turn(q), k, v, after(t)))
        h = rms(p + "post_attention_layernorm", x)
        x = x + lin(w, p + "mlp.down_proj", ACT[c["hidden_act"]](lin(w, p + "mlp.gate_proj", h)) * lin(w, p + "mlp.up_proj", h))
    return rms("model.norm", x) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def resnet(c, w):
    def conv(name, x, stride):
        k = w[name + ".weight"]
        return F.conv2d(x, k, stride=stride, padding=k.shape[-1] // 2)

    def bn(name, x):
        return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"], w[name + ".weight"], w[name + ".bias"])

    x = F.max_pool2d(torch.relu(bn("bn1", conv("conv1", w["in.x"], 2))), 3, 2, 1)
    deep = "layer1.0.conv3.weight" in w
    for stage in range(1, 5):
        i = 0
        while f"layer{stage}.{i}.conv1.weight" in w:
            p, s = f"layer{stage}.{i}.", 2 if stage > 1 and i == 0 else 1
            y = torch.relu(bn(p + "bn1", conv(p + "conv1", x, 1 if deep else s)))
            y = bn(p + "bn2", conv(p + "conv2", y, s if deep else 1))
            if deep:
                y = bn(p + "bn3", conv(p + "conv3", torch.relu(y), 1))
            if p + "downsample.0.weight" in w:
                x = bn(p + "downsample.1", conv(p + "downsample.0", x, s))
            x, i = torch.relu(x + y), i + 1
    return lin(w, "fc", x.mean((2, 3)))


if __name__ == "__main__":
    meta, weights = load(sys.argv[1])
    kinds, results = {"gpt2": gpt2, "bert": bert, "llama": llama, "resnet": resnet}, []
    for i in range(int(meta["models"])):
        mine = {name.partition("/")[2]: t for name, t in weights.items() if name.startswith(f"{i}/")}
        with torch.no_grad():
            results.append(kinds[meta[f"{i}/kind"]](json.loads(meta[f"{i}/config"]), mine).flatten().tolist())
    print(json.dumps(results))
