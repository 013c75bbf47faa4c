"""The models of the comparison as one would write them in PyTorch.

Modules carry the names that the zoo's layers have, so that start values find their place; a model's
forward takes a batch and gives the mean loss.
"""
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    def __init__(self, o):
        super().__init__()
        sizes = [o["in"]] + [o["hidden"]] * o["layers"] + [o["classes"]]
        self.depth = o["layers"] + 1
        for i in range(self.depth):
            self.add_module(f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))

    def forward(self, x, y):
        for i in range(1, self.depth):
            x = F.relu(getattr(self, f"fc{i}")(x))
        return F.cross_entropy(getattr(self, f"fc{self.depth}")(x), y)


class LeNet(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.pads = o["pad"], 2 if o["size"] < 20 else 0
        self.conv1 = nn.Conv2d(o["channels"], o["conv1"], 5, padding=self.pads[0])
        self.conv2 = nn.Conv2d(o["conv1"], o["conv2"], 5, padding=self.pads[1])
        side = o["size"]
        for pad in self.pads:
            side = (side + 2 * pad - 4) // 2
        width = o["conv2"] * side * side
        self.hidden = []
        for i in 1, 2:
            if o[f"fc{i}"]:
                self.add_module(f"fc{i}", nn.Linear(width, o[f"fc{i}"]))
                self.hidden.append(f"fc{i}")
                width = o[f"fc{i}"]
        self.fc3 = nn.Linear(width, o["classes"])

    def forward(self, x, y):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        for name in self.hidden:
            x = F.relu(getattr(self, name)(x))
        return F.cross_entropy(self.fc3(x), y)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        n, t, dim = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(dim, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, dim))


class Block(nn.Module):
    def __init__(self, dim, heads, gelu):
        super().__init__()
        self.gelu = gelu
        self.ln1, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.ln2, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate=self.gelu))


class GPT2(nn.Module):
    def __init__(self, o):
        super().__init__()
        if o["dropout"]:
            raise ValueError("the comparison has no dropout")
        self.layers = o["layers"]
        self.wte = nn.Embedding(o["vocab"], o["dim"])
        self.wpe = nn.Parameter(torch.empty(o["seq"], o["dim"]))
        for i in range(self.layers):
            self.add_module(f"h{i}", Block(o["dim"], o["heads"], "tanh" if o["tanh"] else "none"))
        self.lnf = nn.LayerNorm(o["dim"])

    def forward(self, ids, next):
        x = self.wte(ids) + self.wpe
        for i in range(self.layers):
            x = getattr(self, f"h{i}")(x)
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), next.flatten())


def conv_norm(owner, name, channels, width, kernel, stride):
    """Adds a convolution that keeps the image's size but for its stride, and batch norm."""
    owner.add_module("conv" + name, nn.Conv2d(channels, width, kernel, stride, kernel // 2, bias=False))
    owner.add_module("bn" + name, nn.BatchNorm2d(width))


def norm_of(owner, name, x):
    return getattr(owner, "bn" + name)(getattr(owner, "conv" + name)(x))


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        conv_norm(self, "1", channels, width, 1, 1)
        conv_norm(self, "2", width, width, 3, stride)
        conv_norm(self, "3", width, 4 * width, 1, 1)
        self.projects = stride != 1 or channels != 4 * width
        if self.projects:
            conv_norm(self, "skip", channels, 4 * width, 1, stride)

    def forward(self, x):
        y = F.relu(norm_of(self, "1", x))
        y = F.relu(norm_of(self, "2", y))
        y = norm_of(self, "3", y)
        return F.relu((norm_of(self, "skip", x) if self.projects else x) + y)


class Residual(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        conv_norm(self, "1", channels, width, 3, stride)
        conv_norm(self, "2", width, width, 3, 1)
        self.projects = stride != 1 or channels != width
        if self.projects:
            conv_norm(self, "skip", channels, width, 1, stride)

    def forward(self, x):
        y = norm_of(self, "2", F.relu(norm_of(self, "1", x)))
        return F.relu((norm_of(self, "skip", x) if self.projects else x) + y)


class ResNet(nn.Module):
    """Four stages of blocks whose results are `wider` times as wide as the stage's name says."""

    def __init__(self, o, block, wider, kernel, stride):
        super().__init__()
        channels = o["width"]
        conv_norm(self, "", o["channels"], channels, kernel, stride)
        for stage in range(4):
            width, blocks = o["width"] << stage, OrderedDict()
            for i in range(o[f"blocks{stage + 1}"]):
                blocks[f"b{i + 1}"] = block(channels, width, 2 if stage > 0 and i == 0 else 1)
                channels = wider * width
            self.add_module(f"s{stage + 1}", nn.Sequential(blocks))
        self.fc = nn.Linear(channels, o["classes"])

    def stem(self, x):
        return F.relu(norm_of(self, "", x))

    def forward(self, x, y):
        x = self.s4(self.s3(self.s2(self.s1(self.stem(x)))))
        return F.cross_entropy(self.fc(x.mean((2, 3))), y)


class ResNet18(ResNet):
    def __init__(self, o):
        super().__init__(o, Residual, 1, 3, 1)


class ResNet50(ResNet):
    def __init__(self, o):
        super().__init__(o, Bottleneck, 4, 7, 2)

    def stem(self, x):
        return F.max_pool2d(super().stem(x), 3, 2, 1)


class VolumeBlock(nn.Module):
    """Two convolutions over volumes, to the channels first and second."""

    def __init__(self, channels, first, second):
        super().__init__()
        for i, width in (1, first), (2, second):
            self.add_module(f"conv{i}", nn.Conv3d(channels, width, 3, padding=1, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm3d(width))
            channels = width

    def forward(self, x):
        return F.relu(norm_of(self, "2", F.relu(norm_of(self, "1", x))))


class UNet3d(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.levels, width, channels = o["levels"], o["width"], o["channels"]
        sizes, skipped = [o["depth"], o["size"], o["size"]], []
        for i in range(self.levels):
            self.add_module(f"down{i + 1}", VolumeBlock(channels, width << i, width << i + 1))
            channels = width << i + 1
            skipped.append((channels, [n % 2 for n in sizes]))
            sizes = [n // 2 for n in sizes]
        self.mid = VolumeBlock(channels, width << self.levels, width << self.levels + 1)
        channels = width << self.levels + 1
        for i in reversed(range(self.levels)):
            skip, odd = skipped[i]
            up = VolumeBlock(skip + channels, width << i + 1, width << i + 1)
            up.grow = nn.ConvTranspose3d(channels, channels, 2, 2, output_padding=odd)
            self.add_module(f"up{i + 1}", up)
            channels = width << i + 1
        self.out = nn.Conv3d(channels, o["classes"], 1)

    def forward(self, x, voxels):
        skips = []
        for i in range(self.levels):
            x = getattr(self, f"down{i + 1}")(x)
            skips.append(x)
            x = F.max_pool3d(x, 2)
        x = self.mid(x)
        for i in reversed(range(self.levels)):
            up = getattr(self, f"up{i + 1}")
            x = up(torch.cat((skips[i], up.grow(x)), 1))
        return F.cross_entropy(self.out(x), voxels)


class ConvCell(nn.Module):
    """A layer of a ConvLSTM: one convolution for all gates; i, f and o see the cell."""

    def __init__(self, o, channels):
        super().__init__()
        width, size, k = o["width"], o["size"], o["kernel"]
        self.padding = k // 2
        self.w = nn.Parameter(torch.empty(4 * width, channels + width, k, k))
        self.b = nn.Parameter(torch.empty(4 * width))
        for name in "ci", "cf", "co":
            self.register_parameter(name, nn.Parameter(torch.empty(width, size, size)))

    def forward(self, x, h, c):
        gates = F.conv2d(h if x is None else torch.cat((x, h), 1), self.w, self.b, padding=self.padding)
        i, f, g, o = gates.chunk(4, 1)
        i, f = torch.sigmoid(i + self.ci * c), torch.sigmoid(f + self.cf * c)
        c = f * c + i * torch.tanh(g)
        return torch.sigmoid(o + self.co * c) * torch.tanh(c), c


class ConvLSTM(nn.Module):
    def __init__(self, o):
        super().__init__()
        if o["kernel"] % 2 == 0:
            raise ValueError("the comparison has no even kernels")
        self.layers, self.ahead, self.width = o["layers"], o["ahead"], o["width"]
        for i in range(self.layers):
            self.add_module(f"enc{i + 1}", ConvCell(o, o["width"] if i else o["channels"]))
            self.add_module(f"dec{i + 1}", ConvCell(o, o["width"] if i else 0))
        self.out = nn.Conv2d(self.layers * o["width"], o["channels"], 1)

    def forward(self, x, future):
        n, t, _, rows, cols = x.shape
        zero = x.new_zeros(n, self.width, rows, cols)
        frames, states = x.unbind(1), []
        for i in range(self.layers):
            h, c, out = zero, zero, []
            for frame in frames:
                h, c = getattr(self, f"enc{i + 1}")(frame, h, c)
                out.append(h)
            frames = out
            states.append((h, c))
        below, hidden = [None] * self.ahead, []
        for i in range(self.layers):
            h, c = states[i]
            out = []
            for frame in below:
                h, c = getattr(self, f"dec{i + 1}")(frame, h, c)
                out.append(h)
            below = out
            hidden.append(out)
        h = torch.stack([torch.cat(step, 1) for step in zip(*hidden)], 1)
        return F.binary_cross_entropy_with_logits(self.out(h.flatten(0, 1)).view_as(future), future)


MODELS = {"mlp": MLP, "lenet": LeNet, "gpt": GPT2, "gpt2": GPT2, "resnet": ResNet18, "resnet50": ResNet50,
          "unet3d": UNet3d, "convlstm": ConvLSTM}


def variables(model):
    """Gives every parameter and running statistic by the zoo's name, and whether it is transposed there."""
    out = {}
    for path, module in model.named_modules():
        at = path + "." if path else ""
        if isinstance(module, (nn.LayerNorm, nn.BatchNorm2d, nn.BatchNorm3d)):
            out[at + "scale"], out[at + "bias"] = (module.weight, False), (module.bias, False)
            if not isinstance(module, nn.LayerNorm):
                out[at + "mean"], out[at + "var"] = (module.running_mean, False), (module.running_var, False)
        elif isinstance(module, (nn.Linear, nn.Conv2d, nn.Conv3d, nn.ConvTranspose3d, nn.Embedding)):
            out[at + "w"] = (module.weight, isinstance(module, nn.Linear))
            if getattr(module, "bias", None) is not None:
                out[at + "b"] = (module.bias, False)
        else:
            out |= {at + name: (p, False) for name, p in module.named_parameters(recurse=False)}
    return out
