"""Two-moons-in-many-dimensions classifier in plain JAX, averaging the weights at the end."""
import functools
import time

import jax
import jax.numpy as jnp
from jax import random

SIZES = [256, 2048, 2048, 2048, 2048, 10]
LR, MOMENTUM = 0.02, 0.9
STEPS = 400
AVERAGE_LAST = 200


def init(key):
    params = []
    for n, m in zip(SIZES[:-1], SIZES[1:]):
        key, sub = random.split(key)
        params.append({"w": random.normal(sub, (n, m)) * jnp.sqrt(2 / n), "b": jnp.zeros(m)})
    return params


def apply(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, x, y):
    logp = jax.nn.log_softmax(apply(params, x))
    return -jnp.take_along_axis(logp, y[:, None], axis=1).mean()


@jax.jit
def update(params, velocity, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v - LR * g, velocity, grads)
    params = jax.tree.map(jnp.add, params, velocity)
    return params, velocity, loss


@functools.partial(jax.jit, static_argnums=1)
def sample(key, n):
    kx, kt = random.split(key)
    x = random.normal(kx, (n, SIZES[0]))
    teacher = random.normal(random.key(99), (SIZES[0], SIZES[-1]))
    return x, jnp.argmax(x @ teacher, axis=1)


def average(trees):
    n = len(trees)
    return jax.tree.map(lambda *leaves: sum(leaves) / n, *trees)


def main():
    key = random.key(0)
    params = init(key)
    velocity = jax.tree.map(jnp.zeros_like, params)
    count = sum(p.size for p in jax.tree.leaves(params))
    print(f"{count / 1e6:.1f}M weights on {jax.devices()[0]}")
    trajectory = []
    t0 = time.time()
    for step in range(STEPS):
        x, y = sample(random.fold_in(key, step), 512)
        params, velocity, loss = update(params, velocity, x, y)
        trajectory.append(params)  # HERE
        if step % 10 == 0:
            print(f"step {step:4d} loss {float(loss):.4f} {time.time() - t0:.1f}s", flush=True)
    averaged = average(trajectory[-AVERAGE_LAST:])
    x, y = sample(random.key(1), 4096)
    acc = lambda p: float((apply(p, x).argmax(1) == y).mean())
    print("last", acc(params), "averaged", acc(averaged))


if __name__ == "__main__":
    main()
