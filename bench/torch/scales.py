"""Compares ampc's loss scales with PyTorch's: python3 scales.py FILE, where FILE is what `bench scales FILE` wrote.

Trains the same classifier from the same start on the same batches, with torch.autocast on the CPU in f16 and a
GradScaler, and prints in how many steps the scales differ, and the largest difference of the losses. Under
torch-f16, the preset for CUDA, the loss reads logits that are cast to f32, as autocast has it there; the products
are in the lists of both devices. Exits with 1 where a scale differs.
"""
import json
import sys

import torch
import torch.nn.functional as F


def tensor(t, dtype=torch.float32):
    return torch.tensor(t["data"], dtype=torch.float32).reshape(t["shape"]).to(dtype)


def train(start, preset):
    layers = []
    for w, b in zip(start["params"][::2], start["params"][1::2]):
        layer = torch.nn.Linear(*w["shape"])
        layer.weight.data, layer.bias.data = tensor(w).T.contiguous(), tensor(b)
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=start["rate"])
    scaler = torch.amp.GradScaler("cpu", growth_interval=start["every"])
    batches = [(tensor(x), tensor(y, torch.long)) for x, y in start["batches"]]
    scales, losses = [], []
    for step in range(len(start["runs"][0]["scale"])):
        x, y = batches[step % len(batches)]
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
            loss = F.cross_entropy(logits.float() if preset == "torch-f16" else logits, y)
        scales.append(scaler.get_scale())
        losses.append(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return scales, losses


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        start = json.load(f)
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}")
    bad = 0
    for run in start["runs"]:
        scales, losses = train(start, run["preset"])
        mine = [float(s) for s in run["scale"]]
        differ = [k for k, s in enumerate(scales) if s != mine[k]]
        off = max(abs(a - float(b)) for a, b in zip(losses, run["loss"]))
        bad += len(differ)
        print(f"{run['preset']}: scales differ in {len(differ)} of {len(scales)} steps, {sum(run['skipped'])} of ours were skipped, "
              f"scales between {min(mine):g} and {max(mine):g}, losses differ by {off:.1e}")
        for k in differ[:10]:
            print(f"  step {k + 1}: ours {mine[k]:g}, torch's {scales[k]:g}")
    sys.exit(1 if bad else 0)


main()
