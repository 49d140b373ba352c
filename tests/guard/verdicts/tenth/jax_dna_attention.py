"""Masked-base model for DNA windows, JAX only."""
import argparse
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import jax.random as jr


@dataclass(frozen=True)
class Config:
    dim: int = 256
    heads: int = 8
    layers: int = 2
    bases: int = 6          # A C G T N [mask]


def dense(key, n, m):
    return jr.normal(key, (n, m)) * (n ** -0.5)


def init(key, cfg, length):
    k = iter(jr.split(key, 2 + 4 * cfg.layers))
    p = {"emb": dense(next(k), cfg.bases, cfg.dim),
         "pos": 0.02 * jr.normal(next(k), (length, cfg.dim)), "layers": []}
    for _ in range(cfg.layers):
        p["layers"].append({"qkv": dense(next(k), cfg.dim, 3 * cfg.dim),
                            "o": dense(next(k), cfg.dim, cfg.dim),
                            "up": dense(next(k), cfg.dim, 2 * cfg.dim),
                            "down": dense(next(k), 2 * cfg.dim, cfg.dim)})
    return p


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def attention(p, x, cfg):
    b, t, d = x.shape
    q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
    q, k, v = (a.reshape(b, t, cfg.heads, -1) for a in (q, k, v))
    s = jnp.einsum("bthd,bshd->bhts", q, k) / (d // cfg.heads) ** 0.5
    w = jax.nn.softmax(s, axis=-1)
    return jnp.einsum("bhts,bshd->bthd", w, v).reshape(b, t, d) @ p["o"]


def model(p, ids, cfg):
    x = p["emb"][ids] + p["pos"]
    for layer in p["layers"]:
        x = x + attention(layer, norm(x), cfg)
        x = x + jax.nn.gelu(norm(x) @ layer["up"]) @ layer["down"]
    return norm(x) @ p["emb"].T


def loss_fn(p, ids, mask, cfg):
    logits = model(p, jnp.where(mask, cfg.bases - 1, ids), cfg)
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[..., None], -1)[..., 0]
    return (nll * mask).sum() / mask.sum()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--window", type=int, default=8192, help="bases per example")  # HERE
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--lr", type=float, default=0.05)
    args = ap.parse_args()
    cfg = Config()
    key = jr.key(0)
    params = init(key, cfg, args.window)

    @jax.jit
    def step(params, key):
        k1, k2 = jr.split(key)
        ids = jr.randint(k1, (args.batch, args.window), 0, 4)
        mask = jr.bernoulli(k2, 0.15, ids.shape)
        loss, g = jax.value_and_grad(loss_fn)(params, ids, mask, cfg)
        return jax.tree.map(lambda p, g: p - args.lr * g, params, g), loss

    print(f"window {args.window}, batch {args.batch}, device {jax.devices()[0]}", flush=True)
    for i in range(args.steps):
        params, loss = step(params, jr.fold_in(key, i))
        if i % 10 == 0:
            print(f"step {i} loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
