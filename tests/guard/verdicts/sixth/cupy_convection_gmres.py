"""Steady convection-diffusion on a 160^3 grid, matrix-free GMRES in CuPy."""
import argparse
import time

import cupy as cp
import numpy as np


class Operator:
    """-nu * laplace(u) + w . grad(u) + shift * u, periodic, 2nd order."""

    def __init__(self, n, nu=1.0, wind=(0.3, 0.1, -0.2), shift=1e-4):
        self.n, self.nu, self.wind, self.shift = n, nu, wind, shift

    def __call__(self, v):
        u = v.reshape(self.n, self.n, self.n)
        out = (6 * self.nu + self.shift) * u
        for axis, w in enumerate(self.wind):
            out -= (self.nu - w / 2) * cp.roll(u, -1, axis)
            out -= (self.nu + w / 2) * cp.roll(u, 1, axis)
        return out.ravel()


def givens(h, cs, sn, j):
    for i in range(j):
        t = cs[i] * h[i] + sn[i] * h[i + 1]
        h[i + 1] = -sn[i] * h[i] + cs[i] * h[i + 1]
        h[i] = t
    r = np.hypot(h[j], h[j + 1])
    cs.append(h[j] / r)
    sn.append(h[j + 1] / r)
    h[j], h[j + 1] = r, 0.0


def gmres(op, b, tol, maxiter, report=10):
    beta = float(cp.linalg.norm(b))
    basis = [b / beta]
    columns, cs, sn, g = [], [], [], [beta]
    for j in range(maxiter):
        w = op(basis[j])
        h = []
        for v in basis:
            d = float(cp.dot(v, w))
            w -= d * v
            h.append(d)
        h.append(float(cp.linalg.norm(w)))
        basis.append(w / h[-1])  # HERE
        givens(h, cs, sn, j)
        columns.append(h)
        g.append(-sn[j] * g[j])
        g[j] = cs[j] * g[j]
        res = abs(g[j + 1]) / beta
        if j % report == 0:
            print(f"iter {j:4d} residual {res:.3e}", flush=True)
        if res < tol:
            break
    m = len(columns)
    r = np.zeros((m, m))
    for k, col in enumerate(columns):
        r[: k + 1, k] = col[: k + 1]
    y = np.linalg.solve(r, np.array(g[:m]))
    x = cp.zeros_like(b)
    for yi, v in zip(y, basis):
        x += yi * v
    return x


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=160)
    ap.add_argument("--tol", type=float, default=1e-12)
    ap.add_argument("--maxiter", type=int, default=2000)
    args = ap.parse_args()
    cp.random.seed(0)
    b = cp.random.standard_normal(args.n ** 3)
    start = time.time()
    x = gmres(Operator(args.n), b, args.tol, args.maxiter)  # HERE
    print("norm of solution", float(cp.linalg.norm(x)), f"{time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
