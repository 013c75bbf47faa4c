"""Antialiased scaling by PyTorch, which torchvision's Resize calls for tensors, recorded
for data/images: python3 bench/torch/resize.py > data/images/testdata/resize.txt"""
import torch
import torch.nn.functional as F


def picture(h, w):
    y = torch.arange(h).view(1, h, 1)
    x = torch.arange(w).view(1, 1, w)
    c = torch.arange(3).view(3, 1, 1)
    return ((7 * x * x + 13 * y * (c + 1) + 3 * x * y) // 4 % 256).double() / 255


for mode in ["bilinear", "bicubic"]:
    for (h, w), (oh, ow) in [((37, 53), (16, 24)), ((37, 53), (37, 20)), ((9, 12), (20, 30)), ((64, 8), (5, 11)), ((30, 30), (30, 30))]:
        out = F.interpolate(picture(h, w)[None], size=(oh, ow), mode=mode, antialias=True, align_corners=False)[0].clamp(0, 1)
        print(mode, h, w, oh, ow, " ".join(f"{v:.6f}" for v in out.flatten().tolist()))
