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


RATES = {
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=100),
    "polynomial": lambda o: torch.optim.lr_scheduler.PolynomialLR(o, total_iters=80, power=2.0),
    "restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=10, T_mult=2, eta_min=0.05),
}


def rates(make):
    """The rates of 100 steps from a base rate of 0.5."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule, out = make(optimizer), []
    for _ in range(100):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(out) < 100:
            schedule.step()
    return out


def plateau():
    """The rate after each loss of a run that stops improving twice."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule, out = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, min_lr=0.006), []
    for i in range(24):
        schedule.step(math.exp(-0.5 * min(i, 5)) if i < 14 else 0.01)
        out.append(optimizer.param_groups[0]["lr"])
    return out


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
    schedules = {name: rates(make) for name, make in RATES.items()}
    out = {"optimizers": out, "schedules": schedules | {"plateau": plateau()}}
    print(json.dumps(out, separators=(",", ":")))


main()
