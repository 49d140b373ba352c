"""Differentially private SGD in plain JAX: per-example gradients, clipped, summed, noised."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Params(NamedTuple):
    up: jax.Array
    down: jax.Array
    head: jax.Array


def init(key, dim, hidden, classes):
    k1, k2, k3 = jax.random.split(key, 3)
    return Params(
        jax.random.normal(k1, (dim, hidden)) * dim**-0.5,
        jax.random.normal(k2, (hidden, dim)) * hidden**-0.5,
        jax.random.normal(k3, (dim, classes)) * dim**-0.5,
    )


def logits_of(params, x):
    """One example: (tokens, dim) to (classes,)."""
    h = x + jax.nn.gelu(x @ params.up) @ params.down
    return h.mean(axis=0) @ params.head


def example_loss(params, x, y):
    return -jax.nn.log_softmax(logits_of(params, x))[y]


def clip(grads, limit):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, limit / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, grads), norm


def private_gradient(params, x, y, key, limit, sigma):
    per_example = jax.vmap(jax.grad(example_loss), in_axes=(None, 0, 0))(params, x, y)  # HERE
    clipped, norms = jax.vmap(clip, in_axes=(0, None))(per_example, limit)
    keys = Params(*jax.random.split(key, 3))
    noisy = jax.tree.map(
        lambda g, k: (g.sum(0) + sigma * limit * jax.random.normal(k, g.shape[1:])) / len(x), clipped, keys
    )
    return noisy, norms.mean()


@jax.jit
def train_step(params, x, y, key):
    grads, norm = private_gradient(params, x, y, key, limit=1.0, sigma=0.5)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), norm


@jax.jit
def accuracy(params, x, y):
    guess = jax.vmap(logits_of, in_axes=(None, 0))(params, x).argmax(-1)
    return (guess == y).mean()


class Sequences:
    def __init__(self, dim, tokens, classes, seed=12):
        self.rng = np.random.default_rng(seed)
        self.centers = self.rng.standard_normal((classes, dim), dtype=np.float32)
        self.tokens, self.classes = tokens, classes

    def batch(self, count):
        y = self.rng.integers(0, self.classes, count)
        noise = self.rng.standard_normal((count, self.tokens, self.centers.shape[1]), dtype=np.float32)
        return noise + 0.3 * self.centers[y][:, None], y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=2048)
    args = parser.parse_args()
    data = Sequences(args.dim, tokens=16, classes=10)
    key = jax.random.PRNGKey(0)
    params = init(key, args.dim, args.hidden, 10)
    print("accuracy before training", float(accuracy(params, *data.batch(args.batch))), flush=True)
    for step in range(args.steps):
        key, noise_key = jax.random.split(key)
        x, y = data.batch(args.batch)
        params, norm = train_step(params, x, y, noise_key)  # HERE
        print(f"step {step} mean gradient norm {float(norm):.4f}", flush=True)
    print("accuracy after training", float(accuracy(params, *data.batch(args.batch))), flush=True)


if __name__ == "__main__":
    main()
