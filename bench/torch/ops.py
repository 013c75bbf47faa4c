"""Compares ampc's ops with PyTorch's: python3 ops.py FILE, where FILE is what `bench ops FILE` wrote.

Prints, per preset, in how many cases the result has the dtype that torch.autocast gives it, from f32 operands
and from 16-bit ones; the largest error of results and gradients beside torch's own (both against torch in f64);
and every value at the edge of a domain that differs. On CPU torch runs as it is; for CUDA the same dispatcher
runs on fake tensors, which need no GPU: they have dtypes and no values. Exits with 1 where a difference has no
reason in EXPLAINED.
"""
import json
import math
import sys
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

warnings.filterwarnings("ignore")

# What differs on purpose, with its reason: of an edge the op and what of it, of a dtype the op and the preset.
# docs/semantics.md has each.
NAN_STAYS = "a NaN stays NaN, so that a check finds it"
KEEPS_ZERO = "an odd function keeps the sign of zero"
TRUE_LIMIT = "the limit"
EXPLAINED = {
    ("abs", "gradient 0"): NAN_STAYS,
    ("sign", "result"): NAN_STAYS + "; " + KEEPS_ZERO,
    ("relu", "result"): "what is not above zero becomes +0",
    ("relu", "gradient 0"): "only what is above zero passes; the result is NaN",
    ("elu", "result"): KEEPS_ZERO + " as expm1 does",
    ("selu", "result"): KEEPS_ZERO + " as expm1 does",
    ("gelu", "result"): TRUE_LIMIT,
    ("softsign", "gradient 0"): TRUE_LIMIT,
    ("hardswish", "gradient 0"): NAN_STAYS,
    ("maximum", "result"): "zeros are ordered as IEEE 754 maximum does, whatever their place",
    ("minimum", "result"): "zeros are ordered as IEEE 754 minimum does, whatever their place",
    ("kl_div", "gradient 1"): "0 log 0 is a constant",
}


def rnn(kind, **kw):
    """torch's module over ampc's layout: weights stand transposed, one bias for the inputs, GRU's own for n."""
    def run(x, w, r, b, bn=None):
        m = getattr(nn, kind)(x.shape[-1], r.shape[1], device=x.device, dtype=w.dtype, **kw)
        hh = torch.zeros_like(b)
        if bn is not None:
            hh = torch.cat([hh[: 2 * r.shape[1]], bn[0]])
        p = {"weight_ih_l0": w.T, "weight_hh_l0": r[0].T, "bias_ih_l0": b, "bias_hh_l0": hh}
        return torch.func.functional_call(m, p, x)[0]
    return run


def mean_of_rows(x, t):
    return F.kl_div(x, t, reduction="batchmean")


def wide(f):
    """Indices of torch are i64."""
    return lambda *a: f(*[x.long() if x.dtype == torch.int32 else x for x in a])


OPS = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "clamp": lambda x: torch.clamp(x, -3, 3),
    "prelu": F.prelu,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
    "bce_with_logits_big": F.binary_cross_entropy_with_logits,
    "bce_with_logits_right": F.binary_cross_entropy_with_logits,
    "kl_div": mean_of_rows,
    "soft_cross_entropy": F.cross_entropy,
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(1), "amax": lambda x: x.amax(-1), "amin": lambda x: x.amin(-1),
    "amax_nan": lambda x: x.amax(-1), "prod": lambda x: x.prod(-1), "norm1": lambda x: torch.linalg.vector_norm(x, 1, -1),
    "norm2": lambda x: torch.linalg.vector_norm(x, 2, -1), "var": lambda x: x.var(-1, unbiased=x.dim() > 1),
    "logsumexp": lambda x: x.logsumexp(-1), "logsumexp_inf": lambda x: x.logsumexp(-1), "cumsum": lambda x: x.cumsum(-1),
    "softmax": lambda x: x.softmax(-1), "softmax_one": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
    "transpose": lambda x: x.transpose(0, 1), "pad": lambda x: F.pad(x, (2, 1)), "pow_number": lambda x: x**3,
    "interpolate_nearest": lambda x: F.interpolate(x, size=(7, 7)),
    "interpolate_nearest_exact": lambda x: F.interpolate(x, size=(5, 5), mode="nearest-exact"),
    "interpolate_bilinear": lambda x: F.interpolate(x, size=(7, 13), mode="bilinear"),
    "max_pool2d": lambda x: F.max_pool2d(x, 2), "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "cat": lambda x, y: torch.cat([x, y], 1), "where": lambda c, x, y: torch.where(c > 0, x, y),
    "gather": wide(lambda x, i: x.gather(1, i)), "index_select": wide(lambda x, i: x.index_select(1, i)),
    "scatter_add": wide(lambda x, i, u: x.scatter_add(1, i, u)), "embedding": wide(lambda t, i: F.embedding(i, t)),
    "linear": lambda x, w, b: F.linear(x, w.T, b), "conv1d": lambda x, w, b: F.conv1d(x, w, b, padding=1),
    "conv2d": lambda x, w, b: F.conv2d(x, w, b, 2, 1), "conv2d_groups": lambda x, w, b: F.conv2d(x, w, b, groups=2),
    "conv_transpose2d": lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, (2, 1), 1, 3),
    "attention": F.scaled_dot_product_attention,
    "layer_norm": lambda x, w, b: F.layer_norm(x, (64,), w, b, 1e-5), "rms_norm": lambda x, w: F.rms_norm(x, (64,), w, 1e-5),
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b), "instance_norm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "batch_norm": lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False), "lstm": rnn("LSTM"), "gru": rnn("GRU"), "rnn_tanh": rnn("RNN"), "rnn_relu": rnn("RNN", nonlinearity="relu"),
    "cross_entropy": wide(F.cross_entropy), "cross_entropy_ignored": wide(F.cross_entropy),
    "cross_entropy_smooth": wide(lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1)),
    "cross_entropy_weight": wide(lambda x, i, w: F.cross_entropy(x, i, w)),
    "cross_entropy_weight_smooth": wide(lambda x, i, w: F.cross_entropy(x, i, w, label_smoothing=0.1)),
    "bce_with_logits_pos_weight": lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w),
    "nll_loss": wide(F.nll_loss),
}


def torch_op(name):
    name = name.rstrip("@")
    return OPS.get(name) or getattr(torch, name, None) or getattr(F, name)


def tensor(values, shape, dtype):
    return torch.tensor([float(v) for v in values], dtype=dtype).reshape(shape)


def run(case, dtype):
    """The result and the gradients, as lists by operand, computed in dtype."""
    args = []
    for i, g in zip(case["in"], case["grads"]):
        t = tensor(i["data"], i["shape"], torch.int32 if i["kind"] == "index" else dtype)
        args.append(t.requires_grad_() if g is not None else t)
    if case["name"].startswith("cross_entropy_ignored"):
        args[0] = args[0].detach().reshape(2, 3).requires_grad_()
    y = torch_op(case["name"])(*args)
    grads = [None] * len(args)
    if any(g is not None for g in case["grads"]):
        y.backward(tensor(case["seed"], y.shape, y.dtype))
        grads = [a.grad if g is not None else None for a, g in zip(args, case["grads"])]
    return y.detach(), grads


def error(got, want):
    """The largest difference as a share of the largest number."""
    top = want.abs().max().clamp(min=1e-30)
    return ((got.double() - want).abs().max() / top).item()


def measure(cases):
    print(f"{'op':28} {'result':>9} {'torch':>9}  {'gradients':>9} {'torch':>9}")
    worse = []
    for case in cases:
        want, dwant = run(case, torch.float64)
        got, dgot = run(case, torch.float32)
        ours = error(tensor(case["y"], want.shape, torch.float32), want)
        line = [ours, error(got, want), 0.0, 0.0]
        for mine, g, w in zip(case["grads"], dgot, dwant):
            if w is not None:
                line[2] = max(line[2], error(tensor(mine, w.shape, torch.float32), w))
                line[3] = max(line[3], error(g, w))
        print(f"{case['name']:28} {line[0]:9.1e} {line[1]:9.1e}  {line[2]:9.1e} {line[3]:9.1e}")
        if line[0] > max(8 * line[1], 1e-6) or line[2] > max(8 * line[3], 1e-6):
            worse.append(case["name"])
    return worse


def same(x, y, signed):
    if math.isnan(x) or math.isnan(y):
        return math.isnan(x) and math.isnan(y)
    if x == 0 and y == 0:
        return not signed or math.copysign(1, x) == math.copysign(1, y)
    return x == y or abs(x - y) <= 1e-6 * max(abs(x), abs(y), 1)


def edges(cases):
    """Prints what differs at the edges, one line for an op and what differs of it."""
    bad = []
    for case in cases:
        y, grads = run(case, torch.float32)
        parts = [("result", case["y"], y)]
        parts += [(f"gradient {i}", mine, g) for i, (mine, g) in enumerate(zip(case["grads"], grads)) if g is not None]
        for what, mine, theirs in parts:
            mine, theirs = [float(v) for v in mine], theirs.flatten().tolist()
            at = [k for k in range(len(theirs)) if not same(mine[k], theirs[k], what == "result")]
            if not at:
                continue
            name = case["name"].rstrip("@")
            reason = EXPLAINED.get((name, what))
            operands = [i["data"] if len(i["data"]) == len(theirs) else None for i in case["in"]]
            for k in at:
                here = ", ".join(str(d[k]) for d in operands if d) or str([i["data"] for i in case["in"]])
                print(f"{name} {what} at {here}: {mine[k]:g}, torch {theirs[k]:g}; {reason or 'NOT EXPLAINED'}")
            if not reason:
                bad.append(f"{name} {what}")
    return bad


SHORT = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


class Autocast:
    """torch.autocast, also for CUDA where there is none."""

    def __init__(self, device, dtype):
        self.device, self.dtype = device, dtype

    def __enter__(self):
        torch.set_autocast_enabled(self.device, True)
        torch.set_autocast_dtype(self.device, self.dtype)
        torch.autocast_increment_nesting()

    def __exit__(self, *_):
        torch.autocast_decrement_nesting()
        torch.clear_autocast_cache()
        torch.set_autocast_enabled(self.device, False)


def decision(case, device, low, narrow):
    """The dtype that autocast stores the case's result in."""
    def args():
        for i in case["in"]:
            t = torch.ones(i["shape"], dtype=torch.int32 if i["kind"] == "index" else torch.float32)
            if device == "cuda":
                t = torch.empty(i["shape"], dtype=t.dtype, device="cuda")
            elif i["kind"] != "index":
                t = t / 2
            yield t.to(low) if narrow and i["kind"] == "input" else t

    op = torch_op(case["name"])
    if device == "cuda":
        with FakeTensorMode(), torch.no_grad():
            a = list(args())
            with Autocast("cuda", low):
                return SHORT[op(*a).dtype]
    a = [t.requires_grad_() if i["kind"] in ("input", "weight") else t for i, t in zip(case["in"], args())]
    with Autocast("cpu", low):
        return SHORT[op(*a).dtype]


def decisions(cases):
    bad = []
    for preset in ("torch-f16", "torch-bf16", "torch-cpu-f16", "torch-cpu-bf16"):
        device = "cpu" if "cpu" in preset else "cuda"
        low = torch.bfloat16 if preset.endswith("bf16") else torch.float16
        asked = agreed = 0
        for case in cases:
            for k, narrow in enumerate((False, True)):
                mine = case["dtypes"][preset][k]
                reads = SHORT[low] if narrow else "f32"
                reason = EXPLAINED.get((case["name"], preset)) or EXPLAINED.get((case["name"], device))
                try:
                    theirs = decision(case, device, low, narrow)
                except (RuntimeError, NotImplementedError, TypeError) as e:
                    print(f"{preset}: {case['name']} of {reads}: torch refuses: {str(e).splitlines()[0][:90]}")
                    continue
                asked += 1
                agreed += mine == theirs
                if mine != theirs:
                    print(f"{preset}: {case['name']} of {reads}: {mine}, torch {theirs}; {reason or 'NOT EXPLAINED'}")
                    if not reason:
                        bad.append(f"{preset} {case['name']}")
        print(f"{preset}: {agreed} of {asked} decisions agree, {100 * agreed / asked:.1f}%")
    return bad


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cases = json.load(f)
    inner, edge = [c for c in cases if not c.get("edge")], [c for c in cases if c.get("edge")]
    print(f"PyTorch {torch.__version__}, {len(inner)} ops\n")
    worse = measure(inner)
    print()
    bad = edges(edge)
    print()
    bad += decisions(inner)
    if worse:
        print("\nerrors above 8 times torch's:", ", ".join(worse))
    if bad or worse:
        print("\nwithout a reason:", ", ".join(bad + worse))
        sys.exit(1)


main()
