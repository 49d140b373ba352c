"""4D-Var for a shallow-water model: recover the initial state from sparse height observations (JAX)."""
import argparse
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
from jax import lax

G, DEPTH, DX, DT, NU = 9.81, 100.0, 2000.0, 20.0, 2000.0


def ddx(f):
    return (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / (2 * DX)


def ddy(f):
    return (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / (2 * DX)


def laplacian(f):
    return (jnp.roll(f, 1, 0) + jnp.roll(f, -1, 0) + jnp.roll(f, 1, 1) + jnp.roll(f, -1, 1) - 4 * f) / DX ** 2


def tendency(state):
    h, u, v = state
    total = DEPTH + h
    dh = -(ddx(total * u) + ddy(total * v))
    du = -u * ddx(u) - v * ddy(u) - G * ddx(h) + NU * laplacian(u)
    dv = -u * ddx(v) - v * ddy(v) - G * ddy(h) + NU * laplacian(v)
    return dh, du, dv


def heun(state):
    k1 = tendency(state)
    mid = tuple(s + DT * k for s, k in zip(state, k1))
    k2 = tendency(mid)
    return tuple(s + 0.5 * DT * (a + b) for s, a, b in zip(state, k1, k2))


def integrate(state, nsteps, stride):
    def body(carry, _):
        carry = heun(carry)
        return carry, carry[0][::stride, ::stride]

    return lax.scan(body, state, None, length=nsteps)  # HERE


def make_cost(obs, background, nsteps, stride, b_weight):
    def cost(h0):
        zero = jnp.zeros_like(h0)
        _, heights = integrate((h0, zero, zero), nsteps, stride)
        misfit = jnp.mean((heights - obs) ** 2)
        return misfit + b_weight * jnp.mean((h0 - background) ** 2)

    return jax.jit(jax.value_and_grad(cost))  # HERE


def bump(n, cx, cy, width, amp):
    y, x = jnp.mgrid[0:n, 0:n]
    return amp * jnp.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * width ** 2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=512)
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--stride", type=int, default=16)
    ap.add_argument("--iters", type=int, default=40)
    ap.add_argument("--lr", type=float, default=0.5)
    args = ap.parse_args()
    print("devices", jax.devices())

    truth = bump(args.n, 200, 260, 18.0, 2.0) - bump(args.n, 330, 180, 25.0, 1.0)
    zero = jnp.zeros_like(truth)
    run = jax.jit(integrate, static_argnums=(1, 2))
    t0 = time.time()
    _, obs = run((truth, zero, zero), args.steps, args.stride)
    obs = obs + 0.01 * jax.random.normal(jax.random.PRNGKey(0), obs.shape)
    obs.block_until_ready()
    print(f"synthetic observations {obs.shape} in {time.time() - t0:.1f}s")

    background = 0.5 * bump(args.n, 205, 250, 30.0, 2.0)
    cost_and_grad = make_cost(obs, background, args.steps, args.stride, 1e-3)
    h0, mom = background, jnp.zeros_like(background)
    for it in range(args.iters):
        value, grad = cost_and_grad(h0)
        mom = 0.9 * mom + grad / (jnp.abs(grad).max() + 1e-12)
        h0 = h0 - args.lr * 0.02 * mom
        err = float(jnp.sqrt(jnp.mean((h0 - truth) ** 2)))
        print(f"iter {it:02d} cost {float(value):.5e} rmse {err:.4f}", flush=True)


if __name__ == "__main__":
    main()
