#!/usr/bin/env python3
"""What a real CuPy program takes of the GPU under CuPy's own pool, CUDA's pool, or a strategy of ours.

usage: cupy_memory.py pool|async|STRATEGY

The workload: k-means and a sparse solver on data sets whose sizes vary from round to round, as a program
that takes one file after the other has them. Prints one line of JSON: the most that was asked for, what the
driver gave at most beyond the context, seconds, and a sum that must not depend on the allocator.
"""

import json
import random
import sys
import threading
import time

import cupy
import cupy.cuda


def kmeans(points, clusters, rounds):
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


def jacobi(size, steps):
    """A five-point stencil with a right side, each step with temporaries of the grid."""
    grid = cupy.zeros((size, size), dtype=cupy.float32)
    right = cupy.random.default_rng(size).random((size, size), dtype=cupy.float32)
    for _ in range(steps):
        inner = grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]
        grid[1:-1, 1:-1] = 0.25 * (inner - right[1:-1, 1:-1])
    return float(cupy.abs(grid).sum())


def main():
    which = sys.argv[1]
    hook = None
    if which == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif which != "pool":
        import headroom.cupy as hook

        hook.use(which)
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)  # the context
    warm = cupy.random.default_rng(0).random((64, 64), dtype=cupy.float32)
    float((warm @ warm).sum())  # the libraries
    before, total = cupy.cuda.runtime.memGetInfo()
    least = before
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
    for _ in range(24):
        rows = choose.randrange(200_000, 2_000_000)
        columns = choose.choice([16, 24, 48])
        points = cupy.random.default_rng(rows).random((rows, columns), dtype=cupy.float32)
        result += kmeans(points, 12, 3)
        del points
        result += jacobi(choose.randrange(2_000, 9_000), 20)
    cupy.cuda.Device(0).synchronize()
    seconds = time.monotonic() - began
    ended.set()
    watcher.join()
    print(
        json.dumps(
            {
                "allocator": which,
                "driver_peak_mib": round((before - least) / 2**20, 1),
                "seconds": round(seconds, 2),
                "sum": round(result, 1),
                "counts": hook.statistics() if hook else None,
                "pool_total_mib": round(
                    cupy.get_default_memory_pool().total_bytes() / 2**20, 1
                ),
            }
        )
    )


if __name__ == "__main__":
    main()
