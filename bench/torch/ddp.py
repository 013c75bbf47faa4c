"""Trains a model from a start file with DistributedDataParallel over Gloo, and prints what `bench ranks -worker` prints.

    bench start 'gpt2?layers=4&vocab=8192&batch=1' one.start
    python3 ddp.py one.start --ranks 2 --precision bf16

The start file's batch is that of one rank. Each rank has one thread. With --ranks 1 and --threads it measures one process.
Bytes are those of a ring. messages_s is the time of the same buckets without a step, silent_s that of a step that sends nothing.
"""
import argparse
import json
import os
import socket
import sys
import time

os.environ.setdefault("USE_LIBUV", "0")


def arguments(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--threads", type=int, default=1, help="threads of each rank")
    p.add_argument("--precision", choices=["f32", "bf16"], default="bf16")
    p.add_argument("--steps", type=int, default=3, help="steps that are timed, after two that warm up")
    p.add_argument("--hidden", action="store_true", help="also time steps that send nothing, and the messages alone")
    return p.parse_args(argv)


def seconds(f, steps, warm=0):
    """The seconds of one call of f, which all ranks begin together."""
    import torch.distributed as dist

    for _ in range(warm):
        f()
    if dist.is_initialized():
        dist.barrier()
    begun = time.perf_counter()
    for _ in range(steps):
        f()
    return (time.perf_counter() - begun) / steps


def rank(number, args, port):
    import torch
    import torch.distributed as dist
    import train

    run = train.Run(train.arguments([args.file, "--device", "cpu", "--threads", str(args.threads), "--precision", args.precision]))
    if run.recipe["unit"] != "tokens":
        sys.exit(f"{run.recipe['spec']}: want a language model")
    line = {"by": f"PyTorch {torch.__version__}, {args.threads} threads", "sent_bytes": 0}
    if args.ranks > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=args.ranks)
        run.batches = run.batches[number::args.ranks]
        run.loss = torch.nn.parallel.DistributedDataParallel(run.model)
        line["by"] = f"{args.ranks} ranks, DDP over Gloo, PyTorch {torch.__version__}"
        sizes = [p.numel() for p in run.model.parameters()]
        line["sent_bytes"] = 2 * (args.ranks - 1) * 4 * sum(sizes) // args.ranks
    step = line["step_s"] = seconds(run.step, args.steps, warm=3)  # DDP rebuilds its buckets in the second step
    line["tokens_per_second"] = args.ranks * run.recipe["per_step"] / step
    if args.ranks > 1 and args.hidden:
        line["messages_s"] = seconds(exchange(sizes), args.steps, warm=1)

        def silent():
            with run.loss.no_sync():
                run.step()

        line["silent_s"] = seconds(silent, args.steps, warm=1)
    if number == 0:
        print(json.dumps(line), flush=True)
    if args.ranks > 1:
        dist.destroy_process_group()


def exchange(sizes):
    """A function that sums buckets of 25 MiB over the ranks, as DDP does: all start before the first is waited for."""
    import torch
    import torch.distributed as dist

    buckets = []
    for n in reversed(sizes):
        if not buckets or 4 * buckets[-1] >= 25 << 20:
            buckets.append(0)
        buckets[-1] += n
    tensors = [torch.zeros(n) for n in buckets]

    def run():
        for work in [dist.all_reduce(t, async_op=True) for t in tensors]:
            work.wait()

    return run


def main(argv=None):
    args = arguments(argv)
    os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)  # it takes all processors otherwise, whatever torch is told
    import torch.multiprocessing as mp

    if args.ranks == 1:
        rank(0, args, None)
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(rank, args=(args, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
