"""Writes the files that the tests of package weights read: python3 make.py FOLDER, with PyTorch 2.6 and NumPy.

net.pt, net.safetensors   one state_dict, and net.json: an input and what the module makes of it
kinds.pt                  every dtype, strides, shared storages, a Parameter, an empty tensor and a scalar
nested.pt                 a training checkpoint: model, optimizer and numbers
kinds.npz, packed.npz     NumPy's archives, stored and compressed; kinds.json: what all of them hold

python3 make.py FILE loads a safetensors file into the module, strictly, and prints what it makes of the same input.
"""
import collections
import json
import os
import struct
import sys

import numpy as np
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc1 = nn.Linear(16, 8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.ln = nn.LayerNorm(8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        x = self.fc1(torch.relu(self.bn(self.conv(x))).flatten(2))
        return self.fc2(self.ln(self.attn(x, x, x, need_weights=False)[0]))


def safetensors(tensors, path):
    """The format as https://huggingface.co/docs/safetensors describes it."""
    names = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        raw = t.contiguous().numpy().tobytes()
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def made():
    torch.manual_seed(1)
    net = Net().eval()
    for name, v in net.state_dict().items():
        if v.is_floating_point():
            v.copy_(torch.rand_like(v) + 0.5 if name.endswith("var") else torch.randn_like(v) / 2)
    return net, torch.randn(2, 1, 4, 4)


def read(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    header.pop("__metadata__")
    state = {}
    for name, t in header.items():
        assert t["dtype"] == "F32"
        begin, end = t["data_offsets"]
        state[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(t["shape"])
    net, x = made()
    for p in net.parameters():
        torch.nn.init.zeros_(p)
    net.load_state_dict(state, strict=True)
    with torch.no_grad():
        print(*net(x).flatten().tolist())


def main(folder):
    net, x = made()
    with torch.no_grad():
        y = net(x)
    json.dump({"x": x.flatten().tolist(), "y": y.flatten().tolist()}, open(folder + "/net.json", "w"))
    torch.save(net.state_dict(), folder + "/net.pt")
    safetensors(net.state_dict(), folder + "/net.safetensors")
    opt = torch.optim.AdamW(net.parameters())
    net(x).sum().backward()
    opt.step()
    torch.save({"epoch": 3, "best": 0.5, "model_state_dict": net.state_dict(), "optimizer": opt.state_dict()}, folder + "/nested.pt")

    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    kinds = collections.OrderedDict(
        base=base, turned=base.t(), part=base[1:3, 1:5:2], row=base[2], scalar=base[3, 3], wide=base[:, :1].expand(4, 3),
        param=nn.Parameter(torch.tensor([1.5, -2.0])), empty=torch.zeros(0, 3))
    for d in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        kinds[str(d)[6:]] = torch.tensor([0, 1, 1, 0, 1]).to(d)
    torch.save(kinds, folder + "/kinds.pt")
    arrays = {"base": base.numpy(), "turned": base.t().numpy(), "f16": base.half().numpy(), "f64": base.double().numpy(), "i64": base.long().numpy(), "scalar": np.float32(2.5)}
    np.savez(folder + "/kinds.npz", **arrays)
    np.savez_compressed(folder + "/packed.npz", **arrays)
    held = {name: [list(t.shape), t.detach().double().flatten().tolist()] for name, t in kinds.items()}
    more = {name: [list(a.shape), a.astype(float).flatten().tolist()] for name, a in arrays.items()}
    json.dump({"pt": held, "npz": more}, open(folder + "/kinds.json", "w"))


(main if os.path.isdir(sys.argv[1]) else read)(sys.argv[1])
