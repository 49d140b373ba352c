"""Fit the feed-rate map of a Gray-Scott reaction by differentiating through the simulation."""
import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

DU, DV, KILL = 0.16, 0.08, 0.06


def laplacian(z):
    return (
        jnp.roll(z, 1, 0) + jnp.roll(z, -1, 0) + jnp.roll(z, 1, 1) + jnp.roll(z, -1, 1) - 4.0 * z
    )


def react(state, feed):
    u, v = state
    uvv = u * v * v
    u = u + DU * laplacian(u) - uvv + feed * (1.0 - u)
    v = v + DV * laplacian(v) + uvv - (feed + KILL) * v
    return u, v


def start_state(size, seed):
    rng = np.random.default_rng(seed)
    u, v = np.ones((size, size), np.float32), np.zeros((size, size), np.float32)
    for _ in range(40):
        r, c = rng.integers(0, size - 10, 2)
        u[r : r + 10, c : c + 10], v[r : r + 10, c : c + 10] = 0.5, 0.25
    return jnp.asarray(u), jnp.asarray(v)


@partial(jax.jit, static_argnames="steps")
def simulate(feed, state, steps):
    def body(carry, _):
        return react(carry, feed), None

    (u, v), _ = jax.lax.scan(body, state, None, length=steps)  # HERE
    return u, v


def smoothness(z):
    return jnp.mean((z - jnp.roll(z, 1, 0)) ** 2) + jnp.mean((z - jnp.roll(z, 1, 1)) ** 2)


def misfit(feed, state, target, steps):
    u, v = simulate(feed, state, steps)
    return jnp.mean((u - target[0]) ** 2) + jnp.mean((v - target[1]) ** 2) + 10.0 * smoothness(feed)


class Momentum:
    def __init__(self, value, rate=5.0, decay=0.9):
        self.value, self.rate, self.decay = value, rate, decay
        self.velocity = jnp.zeros_like(value)

    def step(self, grad):
        self.velocity = self.decay * self.velocity - self.rate * grad
        self.value = jnp.clip(self.value + self.velocity, 0.01, 0.08)


def true_feed(size):
    axis = np.linspace(0, 1, size, dtype=np.float32)
    return jnp.asarray(0.030 + 0.015 * axis[:, None] * axis[None, :])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--iterations", type=int, default=30)
    args = parser.parse_args()
    state = start_state(args.size, seed=2)
    target = simulate(true_feed(args.size), state, args.steps)
    print("target simulated, mean v", float(target[1].mean()), flush=True)
    optimizer = Momentum(jnp.full((args.size, args.size), 0.035))
    gradient = jax.jit(jax.value_and_grad(misfit), static_argnames="steps")
    for i in range(args.iterations):
        loss, grad = gradient(optimizer.value, state, target, steps=args.steps)  # HERE
        optimizer.step(grad)
        print(f"iteration {i} misfit {float(loss):.6f}", flush=True)
    error = jnp.abs(optimizer.value - true_feed(args.size)).mean()
    print("mean error of the feed map", float(error), flush=True)


if __name__ == "__main__":
    main()
