"""Reads the start files that `bench start` writes: safetensors with a recipe in the metadata."""
import json
import struct

# What a tensor's dtype is called in the file, how many bytes it has, and in torch.
DTYPES = {"F32": (4, "float32"), "I32": (4, "int32")}


def read(path):
    """Gives the recipe (a dict), and the tensors by name as (dtype, shape, bytes)."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    recipe = json.loads(header.pop("__metadata__")["recipe"])
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        size, dtype = DTYPES[info["dtype"]]
        count = 1
        for n in info["shape"]:
            count *= n
        if end - begin != count * size:
            raise ValueError(f"{path}: {name} has {end - begin} bytes, {info['shape']} of {dtype} takes {count * size}")
        tensors[name] = (dtype, info["shape"], data[begin:end])
    return recipe, tensors


def split(recipe, tensors):
    """Parts the tensors into the start values by variable and the batches, each by input."""
    variables, batches = {}, [{} for _ in range(recipe["batches"])]
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "start":
            variables[rest] = tensor
        else:
            batches[int(kind.removeprefix("batch"))][rest] = tensor
    return variables, batches
