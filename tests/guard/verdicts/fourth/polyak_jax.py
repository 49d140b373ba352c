"""Polyak averaging over the tail of training, in plain JAX."""
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp

WIDTH = 2500


def init(key, depth=4):
    keys = jax.random.split(key, depth)
    return [jax.random.normal(k, (WIDTH, WIDTH), jnp.float32) / WIDTH ** 0.5 for k in keys]


def loss_fn(params, x):
    h = x
    for w in params:
        h = jnp.tanh(h @ w)
    return jnp.mean((h - jnp.flip(x, 1)) ** 2)


@jax.jit
def update(params, x):
    loss, grads = jax.value_and_grad(loss_fn)(params, x)
    return [w - 0.1 * g for w, g in zip(params, grads)], loss


params = init(jax.random.PRNGKey(0))
snapshots = []
for step in range(600):
    x = jax.random.normal(jax.random.PRNGKey(step), (128, WIDTH))
    params, loss = update(params, x)
    snapshots.append(params)  # HERE
    if step % 5 == 0:
        print(step, float(loss), flush=True)

tail = snapshots[-10:]
averaged = [sum(ws) / len(tail) for ws in zip(*tail)]
print("averaged", [float(jnp.linalg.norm(w)) for w in averaged])
