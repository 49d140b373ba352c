"""Language model without attention (token shift and gating, after RWKV's channel mixing) on made-up verses, in JAX."""
import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


def verses(batch, length, vocab, seed):
    rng = np.random.default_rng(seed)
    start = rng.integers(0, vocab, (batch, 1))
    stride = rng.integers(1, 7, (batch, 1))
    return ((start + stride * np.arange(length + 1)) % vocab).astype(np.int32)


def init(key, vocab, dim, layers):
    def normal(key, *shape):
        return (jax.random.normal(key, shape) / shape[0] ** 0.5).astype(jnp.bfloat16)

    keys = jax.random.split(key, 3 * layers + 1)
    blocks = [
        {"mix": jnp.full((dim,), 0.5, jnp.bfloat16), "up": normal(keys[3 * i], dim, 2 * dim),
         "gate": normal(keys[3 * i + 1], dim, 2 * dim), "down": normal(keys[3 * i + 2], 2 * dim, dim)}
        for i in range(layers)
    ]
    return {"embed": normal(keys[-1], vocab, dim), "blocks": blocks}


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True) + 1e-6).astype(x.dtype)


@jax.checkpoint
def block(p, x):
    before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    h = norm(x * p["mix"] + before * (1 - p["mix"]))
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]]
    for p in params["blocks"]:
        x = block(p, x)
    logits = (norm(x) @ params["embed"].T).astype(jnp.float32)  # HERE
    logp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean()


@partial(jax.jit, donate_argnums=0)
def train_step(params, tokens, lr):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
    return jax.tree.map(lambda p, g: p - lr * g.astype(p.dtype), params, grads), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=48_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    params = init(jax.random.key(0), args.vocab, args.dim, args.layers)
    size = sum(p.size for p in jax.tree.leaves(params))
    print(f"{size / 1e6:.1f} M parameters", flush=True)
    for step in range(args.steps):
        tokens = jnp.asarray(verses(args.batch, args.length, args.vocab, step))
        params, loss = train_step(params, tokens, 0.1)
        if step % 10 == 0:
            print(f"step {step} loss {float(loss):.3f}", flush=True)


if __name__ == "__main__":
    main()
