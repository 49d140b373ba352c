"""Unmodified programs of frameworks for guard_gpu.sh: each grows until memory runs out, and prints the framework's
own error.  guard_programs.py torch|torch-graphs|torch-workers|torch-compile|torch-ddp|jax|cupy|numba
Two more do not grow: `steady` trains when it is told to, `refused TIMES` asks for more than there is, that often."""

import os
import statistics
import sys
import time


def torch_net():
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64 * 64, 256)
    ).cuda()
    return torch, net, torch.optim.Adam(net.parameters())


def torch_step(torch, net, optimizer, batch):
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()


def run_torch(mode):
    torch, net, optimizer = torch_net()
    if mode == "torch-compile":
        net = torch.compile(net)
    print("total", torch.cuda.mem_get_info()[1] >> 20, "MiB")
    rows, grown = 64, 0
    try:
        while rows < 200_000:
            if mode == "torch-workers":
                data = torch.utils.data.TensorDataset(torch.randn(2 * rows, 3, 64, 64))
                loader = torch.utils.data.DataLoader(data, rows, num_workers=2)
                for (batch,) in loader:
                    torch_step(torch, net, optimizer, batch.cuda())
            elif mode == "torch-graphs":
                batch = torch.randn(rows, 3, 64, 64, device="cuda")
                torch_step(torch, net, optimizer, batch)
                graph = torch.cuda.CUDAGraph()
                net.zero_grad(set_to_none=True)
                with torch.cuda.graph(graph):
                    net(batch).square().mean().backward()
                graph.replay()
                torch.cuda.synchronize()
            else:
                torch_step(torch, net, optimizer, torch.randn(rows, 3, 64, 64, device="cuda"))
            rows, grown = rows * 2, rows
        print("all fit")
    except torch.OutOfMemoryError as error:
        print("OutOfMemoryError after batch", grown, str(error)[:160])
    except RuntimeError as error:
        print("RuntimeError after batch", grown, str(error)[:160])


def run_ddp():
    import torch
    import torch.multiprocessing as processes

    processes.spawn(ddp_rank, nprocs=2)


def ddp_rank(rank):
    import torch
    import torch.distributed as distributed

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    distributed.init_process_group("gloo", rank=rank, world_size=2)  # two ranks on one card
    torch, net, optimizer = torch_net()
    net = torch.nn.parallel.DistributedDataParallel(net)
    rows = 32
    try:
        while rows < 100_000:
            torch_step(torch, net, optimizer, torch.randn(rows, 3, 64, 64, device="cuda"))
            rows *= 2
    except torch.OutOfMemoryError as error:
        print("OutOfMemoryError rank", rank, str(error)[:120], flush=True)
        os._exit(0)


def run_steady():
    """Each step allocates and frees as a training does, and ends on the device. Trains for each line of stdin
    ("0.4 True") for so many seconds, with or without PyTorch's history; prints the median step in microseconds."""
    torch, net, optimizer = torch_net()
    batch = torch.randn(64, 3, 64, 64, device="cuda")
    for _ in range(20):
        torch_step(torch, net, optimizer, batch)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, history = line.split()
        record = torch.cuda.memory._record_memory_history
        record(None) if history == "False" else record(max_entries=100_000, context="alloc", stacks="python")
        for _ in range(10):
            torch_step(torch, net, optimizer, batch)
        times, ends = [], time.perf_counter() + float(seconds)
        while time.perf_counter() < ends:
            began = time.perf_counter()
            torch_step(torch, net, optimizer, batch)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        print(1e6 * statistics.median(times), flush=True)


def run_refused(times):
    import torch

    torch.zeros(1, device="cuda")
    print("ready", flush=True)
    refused = 0
    for _ in range(times):
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            refused += 1
        time.sleep(0.0005)
    print("refused", refused)


def run_jax():
    import jax
    import jax.numpy as jnp

    kept = []
    try:
        for _ in range(200):
            kept.append(jnp.ones((1 << 26,)).block_until_ready())
        print("all fit")
    except Exception as error:
        print(type(error).__name__, "after", len(kept) * 256, "MiB", str(error)[:120])
    del jax


def run_cupy():
    import cupy

    kept = []
    try:
        for _ in range(400):
            kept.append(cupy.ones((1 << 26,), dtype=cupy.float32))
        print("all fit")
    except cupy.cuda.memory.OutOfMemoryError as error:
        print("OutOfMemoryError after", len(kept) * 256, "MiB", str(error)[:120])


def run_numba():
    from numba import cuda

    kept = []
    try:
        for _ in range(400):
            kept.append(cuda.device_array(1 << 26, dtype="float32"))
        print("all fit")
    except Exception as error:
        print(type(error).__name__, "after", len(kept) * 256, "MiB", str(error)[:120])


if __name__ == "__main__":
    which = sys.argv[1]
    if which == "steady":
        run_steady()
    elif which == "refused":
        run_refused(int(sys.argv[2]))
    elif which == "torch-ddp":
        run_ddp()
    elif which.startswith("torch"):
        run_torch(which)
    else:
        {"jax": run_jax, "cupy": run_cupy, "numba": run_numba}[which]()
