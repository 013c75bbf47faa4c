"""Trains a model from a start file with PyTorch and adds a line to the results, as `bench train` does.

    python3 train.py FILE --precision bf16 --mode eager|compile|max-autotune --into results.jsonl

Mixed precision is torch.autocast, in f16 with a GradScaler; the optimizer is the fused one; images
have channels last unless --planes. Batches come from page-locked memory in every step, as ours do.

With --infer nothing is trained: the loss is computed in inference_mode, in 16 bits by a model whose
weights were converted once, and the host waits for every step.
"""
import argparse
import json
import math
import time
import warnings

import start

BY = {"eager": "torch eager", "compile": "torch compile", "max-autotune": "torch max-autotune"}


def arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--precision", choices=["f32", "tf32", "f16", "bf16"], default="bf16")
    p.add_argument("--mode", choices=list(BY), default="eager")
    p.add_argument("--device", default="cuda")
    p.add_argument("--threads", type=int, default=1, help="threads of --device cpu; 0: as many as PyTorch takes by itself")
    p.add_argument("--planes", action="store_true", help="images have channels first")
    p.add_argument("--check", type=int, default=20, help="steps whose losses are kept, before anything is timed")
    p.add_argument("--rounds", type=int, default=5, help="rounds timed; their median counts")
    p.add_argument("--steps", type=int, default=10, help="steps in a round; the host waits at its end")
    p.add_argument("--infer", action="store_true", help="compute the loss and train nothing")
    p.add_argument("--into", help="file that the result line is added to")
    p.add_argument("--profile", action="store_true", help="print the kernels of a step that took longest, attention's first")
    return p.parse_args(argv)


def line(recipe, args, device, threads, losses, rounds, ready, held, in_use, syncs, skipped, notes=""):
    """The result line; its fields are those of package bench's result."""
    rounds = sorted(rounds)
    step = rounds[len(rounds) // 2]
    return {
        "model": recipe["model"], "spec": recipe["spec"], "precision": args.precision, "infer": args.infer, "by": BY[args.mode], "device": device, "threads": threads,
        "step_ms": step, "best_ms": rounds[0], "unit": recipe["unit"], "per_second": recipe["per_step"] / step * 1e3,
        "held_bytes": held, "in_use_bytes": in_use, "host_syncs": syncs, "losses": losses, "skipped": skipped, "ready_s": ready, "notes": notes,
    }


def written(line):
    """A result line as JSON, which has no NaN: null stands for a loss that is not finite."""
    losses = [x if math.isfinite(x) else None for x in line["losses"]]
    return json.dumps(line | {"losses": losses}, allow_nan=False) + "\n"


class Run:
    """A model, its optimizer and its batches on a device."""

    def __init__(self, args):
        import torch
        import models

        self.torch, self.args = torch, args
        self.recipe, tensors = start.read(args.file)
        values, batches = start.split(self.recipe, tensors)
        self.device = torch.device(args.device)
        self.cuda = self.device.type == "cuda"
        if not self.cuda and args.threads:
            torch.set_num_threads(args.threads)
        torch.backends.cuda.matmul.allow_tf32 = args.precision != "f32"
        torch.backends.cudnn.allow_tf32 = args.precision != "f32"
        torch.backends.cudnn.benchmark = True
        options = {k: v if k == "dropout" else int(v) for k, v in self.recipe["options"].items()}
        self.model = models.MODELS[self.recipe["model"]](options)
        self.load(models.variables(self.model), values)
        last = {"lenet": torch.channels_last, "resnet": torch.channels_last, "resnet50": torch.channels_last,
                "convlstm": torch.channels_last, "unet3d": torch.channels_last_3d}
        self.channels_last = None if args.planes else last.get(self.recipe["model"])
        self.model = self.model.to(self.device)
        if self.channels_last:
            self.model = self.model.to(memory_format=self.channels_last)
        self.batches = [{name: self.host(t) for name, t in b.items()} for b in batches]
        self.optimizer = self.make_optimizer()
        self.low = {"f16": torch.float16, "bf16": torch.bfloat16}.get(args.precision)
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=self.recipe["scale"], growth_interval=self.recipe["every"],
                                           enabled=args.precision == "f16")
        self.loss = self.model if args.mode == "eager" else torch.compile(self.model, mode=None if args.mode == "compile" else args.mode)
        self.taken = 0
        if args.infer:
            self.model.eval().to(self.low or torch.float32)

    def tensor(self, t):
        dtype, shape, data = t
        return self.torch.frombuffer(bytearray(data), dtype=getattr(self.torch, dtype)).reshape(shape)

    def load(self, places, values):
        if places.keys() != values.keys():
            raise ValueError(f"the file has {sorted(values.keys() - places.keys())} too many, lacks {sorted(places.keys() - values.keys())}")
        with self.torch.no_grad():
            for name, (place, transposed) in places.items():
                value = self.tensor(values[name])
                place.copy_(value.t() if transposed else value)

    def host(self, t):
        """A batch as a data loader gives it: labels and ids in 64 bits, images with channels last, page-locked."""
        x = self.tensor(t)
        if x.dtype == self.torch.int32:
            x = x.long()
        elif self.channels_last and x.dim() == (5 if self.channels_last == self.torch.channels_last_3d else 4):  # no films
            x = x.contiguous(memory_format=self.channels_last)
        return x.pin_memory() if self.cuda else x

    def make_optimizer(self):
        r, optim = self.recipe, self.torch.optim
        if r["optimizer"] == "sgd":
            return optim.SGD(self.model.parameters(), lr=r["lr"], momentum=r["momentum"], weight_decay=r["decay"], fused=True)
        if r["optimizer"] == "adamw":
            return optim.AdamW(self.model.parameters(), lr=r["lr"], betas=(r["beta1"], r["beta2"]), eps=r["eps"], weight_decay=r["decay"], fused=True)
        raise ValueError(f"no optimizer {r['optimizer']}")

    def batch(self):
        """The next batch, on the device."""
        batch = self.batches[self.taken % len(self.batches)]
        self.taken += 1
        return {name: x.to(self.device, non_blocking=True) for name, x in batch.items()}

    def inference(self):
        """One step without training; gives the loss."""
        with self.torch.inference_mode():
            batch = {name: x.to(self.low or x.dtype) if x.is_floating_point() else x for name, x in self.batch().items()}
            return self.loss(**batch).float().item()

    def step(self):
        """One step; gives the loss, a tensor on the device where it is trained."""
        if self.args.infer:
            return self.inference()
        batch = self.batch()
        with self.torch.autocast(self.device.type, dtype=self.low, enabled=self.low is not None):
            loss = self.loss(**batch)
        self.scaler.scale(loss).backward()
        if self.recipe["clip_norm"]:
            self.scaler.unscale_(self.optimizer)
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe["clip_norm"])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def wait(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)

    def syncs(self, steps=3):
        """How often a step makes the host wait, as PyTorch itself warns of it."""
        if not self.cuda:
            return 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.torch.cuda.set_sync_debug_mode("warn")
            for _ in range(steps):
                self.step()
            self.torch.cuda.set_sync_debug_mode("default")
        return sum("called a synchronizing" in str(w.message) for w in caught) / steps

    def measure(self):
        begun, losses, skipped = time.perf_counter(), [], 0
        for i in range(self.args.check):
            scale = self.scaler.get_scale()
            losses.append(float(self.step()))
            skipped += self.scaler.get_scale() < scale
            if i == 0:
                ready = time.perf_counter() - begun
        rounds = []
        if self.cuda:
            self.torch.cuda.reset_peak_memory_stats(self.device)
        for _ in range(self.args.rounds):
            self.wait()
            begun = time.perf_counter()
            for _ in range(self.args.steps):
                self.step()
            self.wait()
            rounds.append((time.perf_counter() - begun) * 1e3 / self.args.steps)
        held = in_use = 0
        if self.cuda:
            free, total = self.torch.cuda.mem_get_info(self.device)
            held, in_use = self.torch.cuda.max_memory_allocated(self.device), total - free
        threads = 0 if self.cuda else self.torch.get_num_threads()
        name = self.torch.cuda.get_device_name(self.device) if self.cuda else f"cpu (threads: {threads})"
        return line(self.recipe, self.args, name, threads, losses, rounds, ready, held, in_use, self.syncs(), skipped, f"torch {self.torch.__version__}")

    def profile(self):
        """Prints which kernels a step runs, so that it is on record which attention it was."""
        kinds = self.torch.profiler.ProfilerActivity
        with self.torch.profiler.profile(activities=[kinds.CPU] + [kinds.CUDA] * self.cuda) as p:
            self.step()
            self.wait()
        key = "self_device_time_total" if self.cuda else "self_cpu_time_total"
        events = sorted(p.key_averages(), key=lambda e: -getattr(e, key))
        attention = [e for e in events if any(word in e.key.lower() for word in ("flash", "fmha", "attention", "sdpa"))]
        for e in attention[:6] + events[:12]:
            print(f"  {getattr(e, key) / 1e3:9.3f} ms  {e.count:4d} times  {e.key[:120]}")


def main(argv=None):
    args = arguments(argv)
    run = Run(args)
    r = run.measure()
    print(f"{r['spec']}{', inference' * args.infer} {r['precision']} by {r['by']} on {r['device']}: {r['step_ms']:.2f} ms a step, {r['per_second']:.0f} {r['unit']}/s, "
          f"{r['in_use_bytes'] / 2**30:.1f} GiB in use, {r['host_syncs']:g} host waits a step, loss {r['losses'][0]:.4f} to {r['losses'][-1]:.4f}, "
          f"{r['skipped']} of {len(r['losses'])} steps skipped, ready after {r['ready_s']:.1f} s", flush=True)
    if args.into:
        with open(args.into, "a") as f:
            f.write(written(r))
    if args.profile:
        run.profile()


if __name__ == "__main__":
    main()
