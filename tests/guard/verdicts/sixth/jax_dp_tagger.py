"""Differentially private training of a token tagger (DP-SGD with per-example clipping)."""
import argparse
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Tagger(nn.Module):
    width: int = 512
    depth: int = 4
    tags: int = 17

    @nn.compact
    def __call__(self, x):
        for _ in range(self.depth):
            h = nn.LayerNorm()(x)
            h = nn.gelu(nn.Dense(4 * self.width)(h))
            x = x + nn.Dense(self.width)(h)
        return nn.Dense(self.tags)(x)


def batches(rng, n, batch, length, width):
    for _ in range(n):
        x = rng.standard_normal((batch, length, width), dtype=np.float32)
        y = (np.abs(x[..., 0]) * 6).astype(np.int32) % 17
        yield jnp.asarray(x), jnp.asarray(y)


def make_grad_fn(model):
    def loss(params, x, y):
        logits = model.apply(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    return jax.jit(jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0, 0)))  # HERE


@jax.jit
def clip_and_sum(grads, bound):
    leaves = jax.tree_util.tree_leaves(grads)
    norms = jnp.sqrt(sum(jnp.sum(jnp.square(g), axis=tuple(range(1, g.ndim))) for g in leaves))
    scale = jnp.minimum(1.0, bound / (norms + 1e-6))
    return jax.tree_util.tree_map(lambda g: jnp.tensordot(scale, g, axes=1), grads)


def add_noise(key, grads, sigma, batch):
    leaves, tree = jax.tree_util.tree_flatten(grads)
    keys = jax.random.split(key, len(leaves))
    noisy = [(g + sigma * jax.random.normal(k, g.shape)) / batch for g, k in zip(leaves, keys)]
    return jax.tree_util.tree_unflatten(tree, noisy)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--length", type=int, default=64)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--sigma", type=float, default=0.8)
    ap.add_argument("--steps", type=int, default=100)
    args = ap.parse_args()

    model = Tagger()
    key = jax.random.PRNGKey(0)
    params = model.init(key, jnp.zeros((args.length, 512)))
    opt = optax.adam(1e-3)
    state = opt.init(params)
    grad_fn = make_grad_fn(model)
    rng = np.random.default_rng(0)
    for step, (x, y) in enumerate(batches(rng, args.steps, args.batch, args.length, 512)):
        losses, grads = grad_fn(params, x, y)
        key, sub = jax.random.split(key)
        grads = add_noise(sub, clip_and_sum(grads, args.clip), args.sigma * args.clip, args.batch)
        updates, state = opt.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        print(f"step {step} loss {float(losses.mean()):.4f}", flush=True)


if __name__ == "__main__":
    main()
