"""Shallow-water equations on a doubly periodic grid, integrated with lax.scan."""
import argparse
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class State(NamedTuple):
    h: jax.Array
    u: jax.Array
    v: jax.Array


class Params(NamedTuple):
    g: float = 9.81
    f: float = 1e-4
    depth: float = 100.0
    drag: float = 1e-6
    visc: float = 50.0
    dx: float = 5000.0
    dt: float = 60.0


def ddx(a, dx):
    return (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1)) / (2 * dx)


def ddy(a, dx):
    return (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0)) / (2 * dx)


def laplacian(a, dx):
    nb = jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1)
    return (nb - 4 * a) / dx ** 2


def tendency(s, p):
    dh = -(p.depth * (ddx(s.u, p.dx) + ddy(s.v, p.dx)) + s.u * ddx(s.h, p.dx) + s.v * ddy(s.h, p.dx))
    du = -p.g * ddx(s.h, p.dx) + p.f * s.v - p.drag * s.u + p.visc * laplacian(s.u, p.dx)
    dv = -p.g * ddy(s.h, p.dx) - p.f * s.u - p.drag * s.v + p.visc * laplacian(s.v, p.dx)
    return State(dh, du, dv)


def axpy(a, x, y):
    return jax.tree_util.tree_map(lambda xi, yi: yi + a * xi, x, y)


def rk3(s, p):
    k1 = axpy(p.dt / 3, tendency(s, p), s)
    k2 = axpy(p.dt / 2, tendency(k1, p), s)
    return axpy(p.dt, tendency(k2, p), s)


@partial(jax.jit, static_argnums=(1, 2))
def integrate(state, params, n_steps):
    def body(s, _):
        new = rk3(s, params)
        return new, new  # HERE

    return jax.lax.scan(body, state, None, length=n_steps)  # HERE


def initial_state(n, seed):
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n), indexing="ij")
    h = np.zeros((n, n))
    for _ in range(6):
        cx, cy = rng.uniform(-0.7, 0.7, 2)
        h += rng.normal() * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 0.02)
    z = jnp.zeros((n, n), jnp.float32)
    return State(jnp.asarray(h, jnp.float32), z, z)


def energy(s, p):
    return float(jnp.mean(0.5 * p.depth * (s.u ** 2 + s.v ** 2) + 0.5 * p.g * s.h ** 2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=768)
    ap.add_argument("--spinup", type=int, default=60)
    ap.add_argument("--steps", type=int, default=1440)
    ap.add_argument("--days", type=int, default=5)
    ap.add_argument("--frame-every", type=int, default=120)
    ap.add_argument("--out", default="")
    args = ap.parse_args()

    p = Params()
    state = initial_state(args.n, 0)
    state, _ = integrate(state, p, args.spinup)
    print(f"after spin-up: energy {energy(state, p):.4e}", flush=True)
    frames = []
    for day in range(args.days):
        t0 = time.time()
        state, traj = integrate(state, p, args.steps)
        frames.append(np.asarray(traj.h[:: args.frame_every]))
        print(f"day {day} energy {energy(state, p):.4e} "
              f"max |h| {float(jnp.abs(state.h).max()):.3f} {time.time() - t0:.1f}s", flush=True)
    if args.out:
        np.save(args.out, np.concatenate(frames))


if __name__ == "__main__":
    main()
