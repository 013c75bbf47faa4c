"""PyTorch's time for what TestBandwidth measures: same shapes, same dtypes, one call each."""
import torch


def seconds(run, repeats=9):
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / 1e3)
    return sorted(times)[len(times) // 2]


def row(name, nbytes, run):
    t = seconds(run)
    print(f"torch {name:22s} {t * 1e3:8.3f} ms  {nbytes / t / 1e9:6.0f} GB/s", flush=True)


def main():
    n, f = 1 << 27, torch.nn.functional
    print("torch", torch.__version__, torch.cuda.get_device_name())
    x = torch.randn(n, device="cuda")
    row("copy f32", 8 * n, lambda: x.clone())
    row("cast f32 to bf16", 6 * n, lambda: x.to(torch.bfloat16))
    h = x.to(torch.bfloat16)
    row("cast bf16 to f32", 6 * n, lambda: h.float())
    del x, h
    rows = torch.randn(1 << 17, 768, device="cuda", dtype=torch.bfloat16)
    w, b = torch.ones(768, device="cuda", dtype=torch.bfloat16), torch.zeros(768, device="cuda", dtype=torch.bfloat16)
    row("layer_norm", 4 * rows.numel(), lambda: f.layer_norm(rows, (768,), w, b))
    soft = torch.randn(1 << 17, 1024, device="cuda", dtype=torch.bfloat16)
    row("softmax 1024", 4 * soft.numel(), lambda: f.softmax(soft, -1))
    del soft
    logits = torch.randn(16384, 50304, device="cuda", dtype=torch.bfloat16)
    labels = torch.zeros(16384, device="cuda", dtype=torch.long)
    row("cross entropy fwd", 2 * logits.numel(), lambda: f.cross_entropy(logits, labels))
    del logits
    p = torch.nn.Parameter(torch.randn(n, device="cuda"))
    p.grad = torch.randn(n, device="cuda")
    opt = torch.optim.AdamW([p], fused=True)
    row("fused AdamW f32 grads", 28 * n, opt.step)


main()
