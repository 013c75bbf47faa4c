"""Prints, as JSON, what PyTorch's optimizers make of some weights.

Each case steps four parameters by gradients that a formula gives, and lists
their elements after some of the steps. Lion and Muon, which PyTorch 2.6 lacks, are
written here from their papers. optim/testdata/torch.json is its output:

    python bench/torch/optim.py > optim/testdata/torch.json
"""

import json
import math

import torch

SHAPES = [[5], [4, 6], [6, 4], [2, 3, 2]]
STEPS = 20
SHOWN = [1, 2, 5, 20]


def values(shape, shift, size):
    n = math.prod(shape)
    x = [size * (1 + i % 3) * math.sin(1.7 * i * i + shift) for i in range(n)]
    return torch.tensor(x, dtype=torch.float32).reshape(shape)


class Lion:
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        self.params, self.lr, self.betas, self.decay = params, lr, betas, weight_decay
        self.m = [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p, m in zip(self.params, self.m):
            update = (b1 * m + (1 - b1) * p.grad).sign()
            p -= self.lr * (update + self.decay * p)
            m.mul_(b2).add_(p.grad, alpha=1 - b2)


class Muon:
    """Jordan's Muon in f32. Our weights are [in, out], his [out, in]."""

    def __init__(self, params, lr, momentum=0.95, nesterov=True, weight_decay=0.0, match=False):
        self.params, self.lr, self.mu, self.nesterov = params, lr, momentum, nesterov
        self.decay, self.match = weight_decay, match
        self.m = [torch.zeros_like(p) for p in params]

    @staticmethod
    def zeropower(g):
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g.T if g.size(0) > g.size(1) else g
        x = x / x.norm().clamp(min=1e-7)
        for _ in range(5):
            s = x @ x.T
            x = a * x + (b * s + c * s @ s) @ x
        return x.T if g.size(0) > g.size(1) else x

    @torch.no_grad()
    def step(self):
        for p, m in zip(self.params, self.m):
            m.lerp_(p.grad, 1 - self.mu)
            u = p.grad.lerp(m, self.mu) if self.nesterov else m
            matrix = u.T if u.dim() == 2 else u.reshape(len(u), -1)
            out, inner = matrix.shape
            step = self.zeropower(matrix)
            step = step.T if u.dim() == 2 else step.reshape(u.shape)
            scale = 0.2 * math.sqrt(max(out, inner)) if self.match else math.sqrt(max(1, out / inner))
            p.mul_(1 - self.lr * self.decay)
            p.add_(step, alpha=-self.lr * scale)


CASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "lion": lambda p: Lion(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "rmsprop-momentum": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, momentum=0.9, weight_decay=0.1),
    "rmsprop-centered": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "adafactor-decay": lambda p: torch.optim.Adafactor(p, lr=1.0, d=1.5, weight_decay=0.01),
    "muon": lambda p: Muon(p, lr=0.02, weight_decay=0.1),
    "muon-plain": lambda p: Muon(p, lr=0.02, nesterov=False, match=True),
}


def main():
    out = {}
    for name, make in CASES.items():
        params = [values(s, 0.3, 0.5).requires_grad_() for s in SHAPES if len(s) > 1 or "muon" not in name]
        optimizer = make(params)
        out[name] = {}
        for t in range(1, STEPS + 1):
            for p in params:
                p.grad = values(list(p.shape), 0.9 * t, 0.1)
            optimizer.step()
            if t in SHOWN:
                out[name][str(t)] = [p.detach().flatten().tolist() for p in params]
    print(json.dumps(out, separators=(",", ":")))


main()
