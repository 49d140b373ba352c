"""Spinodal decomposition in three dimensions: Cahn-Hilliard, semi-implicit Fourier.

    dc/dt = M lap( c^3 - c - kappa lap c )

Single precision is plenty for coarsening statistics.
"""
import sys
import time

import cupy as cp
import numpy as np

N = 384
L = 2 * np.pi * 24
DT = 0.02
KAPPA = 1.0
MOBILITY = 1.0
STEPS = 400
REPORT = 10


def wave_numbers(n, length):
    k = 2 * np.pi * cp.fft.fftfreq(n, d=length / n)  # HERE
    k2 = k[:, None, None] ** 2 + k[None, :, None] ** 2 + k[None, None, :] ** 2
    return k2


def initial_state(n, mean=0.0, noise=0.05, seed=7):
    rng = cp.random.default_rng(seed)
    c = rng.standard_normal((n, n, n), dtype=cp.float32)
    c *= np.float32(noise)
    c += np.float32(mean)
    return c


def chemical_potential(c):
    mu = c * c
    mu *= c
    mu -= c
    return mu


def step(c, k2, denom):
    c_hat = cp.fft.fftn(c)
    mu_hat = cp.fft.fftn(chemical_potential(c))
    c_hat = (c_hat - DT * MOBILITY * k2 * mu_hat) / denom  # HERE
    del mu_hat
    return cp.fft.ifftn(c_hat).real


def report(i, c, t0):
    mean = float(c.mean())
    lo, hi = float(c.min()), float(c.max())
    cp.cuda.Device().synchronize()
    print(f"step {i:4d}  mean {mean:+.5f}  min {lo:+.3f}  max {hi:+.3f}  {time.time() - t0:.1f}s", flush=True)


def structure_peak(c, k2, bins=60):
    power = cp.abs(cp.fft.rfftn(c)) ** 2
    k = cp.sqrt(k2[..., : c.shape[-1] // 2 + 1])
    edges = cp.linspace(0, float(k.max()) / 2, bins + 1)
    total, _ = cp.histogram(k, bins=edges, weights=power)
    count, _ = cp.histogram(k, bins=edges)
    shell = total / cp.maximum(count, 1)
    return float(edges[int(shell[1:].argmax()) + 1])


def main():
    k2 = wave_numbers(N, L)
    denom = 1 + DT * MOBILITY * KAPPA * k2 * k2
    c = initial_state(N)
    print(f"grid {N}^3, {c.nbytes / 2**20:.0f} MiB for the field", flush=True)

    t0 = time.time()
    for i in range(STEPS):
        if i % REPORT == 0:
            report(i, c, t0)
        c = step(c, k2, denom)
    report(STEPS, c, t0)
    print("domain size", 2 * np.pi / structure_peak(c, k2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
