#!/usr/bin/env python3
"""Measures the GPU memory of a CuPy program under CuPy's own pool, CUDA's pool, and our strategies.

usage: cupy_memory.py [--json FILE] [ALLOCATOR...]

ALLOCATOR is pool (CuPy's own), async (CUDA's, by cudaMallocAsync) or a strategy of ours; pool, async, mapped and
caching unless given. Each runs in a process of its own. HEADROOM_LIBRARY names libheadroom.so, and PYTHONPATH the
folder with the package headroom.

The workload: k-means and a stencil on data sets whose sizes vary from round to round, as a program has them that takes
one file after the other. Prints a table: the peak from the driver beyond the context and the libraries (cudaMemGetInfo,
every 2 ms), the peaks that the allocator reports as reserved and requested, seconds, and a sum that must not depend on
the allocator. Exit codes: 0 done, 5 the sums differ, 1 anything else.
"""

import json
import random
import subprocess
import sys
import threading
import time

ROUNDS = 24
MIB = 2**20
COLUMNS = (
    ("allocator", 12),
    ("driver peak", 11),
    ("reserved", 9),
    ("requested", 9),
    ("driver calls", 12),
    ("seconds", 8),
    ("sum", 14),
)


def numbers(cupy, rows, columns):
    """Returns the same numbers in [0, 1) on every machine, without a library of random numbers."""
    bits = cupy.arange(rows * columns, dtype=cupy.uint32)
    bits *= cupy.uint32(2654435761)
    bits ^= bits >> cupy.uint32(15)
    bits *= cupy.uint32(2246822519)
    return ((bits >> cupy.uint32(8)).astype(cupy.float32) * cupy.float32(2**-24)).reshape(rows, columns)


def kmeans(cupy, points, clusters, rounds):
    """Lloyd's algorithm; its distances are the large temporaries."""
    centers = points[:clusters].copy()
    for _ in range(rounds):
        distances = ((points**2).sum(1)[:, None] - 2 * points @ centers.T) + (centers**2).sum(1)
        labels = distances.argmin(1)
        for cluster in range(clusters):
            chosen = points[labels == cluster]
            if len(chosen):
                centers[cluster] = chosen.mean(0)
    return float(cupy.abs(centers).sum())


def jacobi(cupy, size, steps):
    """A five-point stencil with a right side, each step with temporaries of the grid."""
    grid = cupy.zeros((size, size), dtype=cupy.float32)
    right = numbers(cupy, size, size)
    for _ in range(steps):
        inner = grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]
        grid[1:-1, 1:-1] = 0.25 * (inner - right[1:-1, 1:-1])
    return float(cupy.abs(grid).sum())


def run_one(which):
    """Runs the workload under one allocator and prints a line of JSON."""
    import cupy
    import cupy.cuda

    pool = ours = None
    if which == "pool":
        pool = cupy.get_default_memory_pool()
    elif which == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    else:
        import headroom.cupy as ours

        ours.use(which)
    # The context, the libraries and all kernels of the workload, which a first call compiles.
    kmeans(cupy, numbers(cupy, 4096, 16), 12, 1)
    jacobi(cupy, 64, 1)
    cupy.cuda.Device(0).synchronize()
    before = least = cupy.cuda.runtime.memGetInfo()[0]
    ended = threading.Event()

    def watch():
        nonlocal least
        cupy.cuda.Device(0).use()
        while not ended.wait(0.002):
            least = min(least, cupy.cuda.runtime.memGetInfo()[0])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    began = time.monotonic()
    result = 0.0
    choose = random.Random(1)
    for _ in range(ROUNDS):
        points = numbers(cupy, choose.randrange(200_000, 2_000_000), choose.choice([16, 24, 48]))
        result += kmeans(cupy, points, 12, 3)
        del points
        result += jacobi(cupy, choose.randrange(2_000, 9_000), 20)
    cupy.cuda.Device(0).synchronize()
    seconds = time.monotonic() - began
    ended.set()
    watcher.join()
    counts = ours.statistics() if ours else {}
    print(
        json.dumps(
            {
                "allocator": which,
                "driver_peak_bytes": before - least,
                "reserved_peak_bytes": pool.total_bytes() if pool else counts.get("reserved_peak_bytes"),
                "requested_peak_bytes": counts.get("requested_peak_bytes"),
                "driver_calls": counts.get("driver_calls"),
                "seconds": round(seconds, 3),
                "sum": result,
                "cupy": cupy.__version__,
            }
        )
    )


def in_mib(number):
    return "-" if number is None else f"{number / MIB:.0f}"


def print_row(values):
    print("  ".join(f"{str(value):>{width}}" for value, (_, width) in zip(values, COLUMNS)), flush=True)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        return run_one(arguments[1])
    if any(word in ("-h", "--help") for word in arguments):
        print(__doc__.strip())
        return 0
    path = None
    if arguments[:1] == ["--json"]:
        path, arguments = arguments[1], arguments[2:]
    results, failed = [], False
    print_row([title for title, _ in COLUMNS])
    for which in arguments or ("pool", "async", "mapped", "caching"):
        done = subprocess.run(
            [sys.executable, __file__, "--one", which], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            failed = True
            print(f"{which}: {done.stderr.strip()[-600:]}", flush=True)
            continue
        row = json.loads(done.stdout.splitlines()[-1])
        results.append(row)
        print_row(
            [
                which,
                in_mib(row["driver_peak_bytes"]),
                in_mib(row["reserved_peak_bytes"]),
                in_mib(row["requested_peak_bytes"]),
                "-" if row["driver_calls"] is None else row["driver_calls"],
                f"{row['seconds']:.2f}",
                f"{row['sum']:.3f}",
            ]
        )
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    same = len({row["sum"] for row in results}) <= 1
    print(f"sizes in MiB; the sums are {'the same' if same else 'DIFFERENT'}")
    return 1 if failed else 0 if same else 5


if __name__ == "__main__":
    sys.exit(main())
