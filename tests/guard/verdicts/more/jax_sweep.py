"""Random search over learning rate and weight decay for an MLP surrogate (pure JAX).

At the end the five best networks are used as an ensemble.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SIZES = (64, 3072, 3072, 3072, 3072, 8)
TRIALS = 80
STEPS = 12
BATCH = 512


class Config(NamedTuple):
    lr: float
    decay: float


class State(NamedTuple):
    params: list
    m: list
    v: list
    step: jax.Array


def init_params(key):
    params = []
    for k, (n, m) in zip(jax.random.split(key, len(SIZES) - 1), zip(SIZES, SIZES[1:])):
        params.append({"w": jax.random.normal(k, (n, m)) * jnp.sqrt(2.0 / n), "b": jnp.zeros(m)})
    return params


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def mse(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


@jax.jit
def init_state(key):
    params = init_params(key)
    zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
    return State(params, zeros, zeros, jnp.zeros((), jnp.int32))


@jax.jit
def update(state, x, y, lr, decay):
    loss, grads = jax.value_and_grad(mse)(state.params, x, y)
    step = state.step + 1
    m = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, state.m, grads)
    v = jax.tree_util.tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, state.v, grads)
    scale = jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)

    def apply(p, m, v):
        return p - lr * (scale * m / (jnp.sqrt(v) + 1e-8) + decay * p)

    params = jax.tree_util.tree_map(apply, state.params, m, v)
    return State(params, m, v, step), loss


evaluate = jax.jit(mse)


def make_data(rng, n):
    x = rng.normal(size=(n, SIZES[0])).astype(np.float32)
    y = np.stack([np.sin(x[:, i] + x[:, i + 8]) for i in range(SIZES[-1])], axis=1)
    return x, y.astype(np.float32)


def run_trial(seed, config, train, valid, rng):
    state = init_state(jax.random.PRNGKey(seed))
    x, y = train
    for _ in range(STEPS):
        rows = rng.integers(0, len(x), BATCH)
        state, loss = update(state, x[rows], y[rows], config.lr, config.decay)
    return float(evaluate(state.params, *valid)), state


def main():
    rng = np.random.default_rng(0)
    train, valid = make_data(rng, 50_000), make_data(rng, 2_000)
    print("devices:", jax.devices(), flush=True)

    results = []
    for trial in range(TRIALS):
        config = Config(lr=float(10 ** rng.uniform(-5, -3)), decay=float(10 ** rng.uniform(-4, -1)))
        score, state = run_trial(trial, config, train, valid, rng)
        results.append((score, config, state.params))  # HERE
        print(f"trial {trial:3d} lr {config.lr:.1e} decay {config.decay:.1e} mse {score:.4f}", flush=True)

    results.sort(key=lambda r: r[0])
    ensemble = jnp.mean(jnp.stack([predict(p, valid[0]) for _, _, p in results[:5]]), axis=0)
    print("best", results[0][:2], "ensemble", float(jnp.mean((ensemble - valid[1]) ** 2)))


if __name__ == "__main__":
    main()
