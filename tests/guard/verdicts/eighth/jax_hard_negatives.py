"""Dual-encoder training in JAX with periodically refreshed hard negatives from a passage index."""
import argparse
import functools
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


def init_mlp(key, sizes):
    params = []
    for k, (m, n) in zip(jax.random.split(key, len(sizes) - 1), zip(sizes[:-1], sizes[1:])):
        params.append({"w": jax.random.normal(k, (m, n)) / jnp.sqrt(m), "b": jnp.zeros((n,))})
    return params


def encode(params, x):
    for i, layer in enumerate(params):
        x = x @ layer["w"] + layer["b"]
        if i < len(params) - 1:
            x = jax.nn.gelu(x)
    return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def loss_fn(params, q, pos, neg, temp=0.05):
    eq, ep, en = encode(params["query"], q), encode(params["passage"], pos), encode(params["passage"], neg)
    logits = jnp.concatenate([eq @ ep.T, jnp.einsum("bd,bkd->bk", eq, en)], axis=1) / temp
    return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(logits, axis=1)))


@functools.partial(jax.jit, static_argnames="lr")
def train_step(params, mom, q, pos, neg, lr):
    loss, grads = jax.value_and_grad(loss_fn)(params, q, pos, neg)
    mom = jax.tree.map(lambda m, g: 0.9 * m + g, mom, grads)
    params = jax.tree.map(lambda p, m: p - lr * m, params, mom)
    return params, mom, loss


class PassageIndex:
    """Each refresh publishes a compiled search function; older versions stay for agreement statistics."""

    def __init__(self, passages, k):
        self.passages, self.k = passages, k
        self.versions = []

    def refresh(self, params):
        bank = jax.jit(encode)(params["passage"], self.passages)

        @jax.jit
        def search(queries):
            return jax.lax.top_k(queries @ bank.T, self.k)[1]  # HERE

        self.versions.append(search)  # HERE

    def search(self, queries):
        return self.versions[-1](queries)

    def agreement(self, queries):
        if len(self.versions) < 2:
            return 0.0
        old, new = self.versions[-2](queries), self.versions[-1](queries)
        return float(jnp.mean(old[:, :, None] == new[:, None, :]) * self.k)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--passages", type=int, default=60000)
    ap.add_argument("--feat", type=int, default=128)
    ap.add_argument("--embed", type=int, default=640)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--negatives", type=int, default=4)
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--refresh-every", type=int, default=40)
    args = ap.parse_args()

    key = jax.random.PRNGKey(0)
    key, kp, kq, kd = jax.random.split(key, 4)
    passages = jax.random.normal(kd, (args.passages, args.feat))
    sizes = (args.feat, 512, args.embed)
    params = {"query": init_mlp(kq, sizes), "passage": init_mlp(kp, sizes)}
    mom = jax.tree.map(jnp.zeros_like, params)
    index = PassageIndex(passages, args.negatives)

    for step in range(args.steps):
        if step % args.refresh_every == 0:
            index.refresh(params)
        key, k1, k2 = jax.random.split(key, 3)
        ids = jax.random.randint(k1, (args.batch,), 0, args.passages)
        pos = passages[ids]
        q = pos + 0.5 * jax.random.normal(k2, pos.shape)
        neg = passages[index.search(encode(params["query"], q))]
        params, mom, loss = train_step(params, mom, q, pos, neg, 0.01)
        if step % args.refresh_every == 0:
            print(f"step {step} loss {float(loss):.4f} index v{len(index.versions)} "
                  f"agreement {index.agreement(encode(params['query'], q)):.3f}", flush=True)


if __name__ == "__main__":
    main()
