"""Full-batch fit of a surrogate for an expensive simulator: Adam first, then L-BFGS."""
import logging
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("surrogate")


class Surrogate(nn.Module):
    width: int = 1024
    depth: int = 6

    @nn.compact
    def __call__(self, x):
        for _ in range(self.depth):
            x = nn.tanh(nn.Dense(self.width)(x))
        return nn.Dense(1)(x)[..., 0]


def simulator_table(n=8192, dims=1024):
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (n, dims)).astype(np.float32)
    y = np.sin(3 * x[:, 0]) * x[:, 1] + 0.3 * np.square(x[:, 2:10]).sum(1)
    return jnp.asarray(x), jnp.asarray(y.astype(np.float32))


def warm_up(loss, params, steps=200):
    opt = optax.adam(3e-4)
    state = opt.init(params)

    @jax.jit
    def step(params, state):
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = opt.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    for i in range(steps):
        params, state, value = step(params, state)
        if i % 50 == 0:
            log.info("adam %d: %.5f", i, float(value))
    return params


def polish(loss, params, steps=300):
    # more history = closer to the true Hessian
    opt = optax.lbfgs(memory_size=150)  # HERE
    state = opt.init(params)
    value_and_grad = optax.value_and_grad_from_state(loss)

    @jax.jit
    def step(params, state):
        value, grad = value_and_grad(params, state=state)
        updates, state = opt.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        return optax.apply_updates(params, updates), state, value

    for i in range(steps):
        params, state, value = step(params, state)
        if i % 10 == 0:
            log.info("lbfgs %d: %.7f", i, float(value))
    return params


def main():
    x, y = simulator_table()
    model = Surrogate()
    params = model.init(jax.random.PRNGKey(1), x[:1])
    n = sum(p.size for p in jax.tree_util.tree_leaves(params))
    log.info("%.1fM parameters, %d runs", n / 1e6, len(y))

    def loss(p):
        return jnp.mean(jnp.square(model.apply(p, x) - y))

    params = warm_up(loss, params)
    params = polish(loss, params)
    log.info("final %.8f", float(loss(params)))


if __name__ == "__main__":
    main()
