"""Predict concentrations from absorption spectra. The whole table sits on the device."""
import argparse
import time

import numpy as np
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)  # HERE


def load_spectra(rows, channels, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, channels))
    x -= 0.5
    w = rng.normal(size=(channels, 4)) / np.sqrt(channels)
    y = np.tanh(x @ w) + 0.01 * rng.normal(size=(rows, 4))
    return x, y


def init_params(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (m, n)) / jnp.sqrt(m), jnp.zeros((n,)))
            for k, m, n in zip(keys, sizes[:-1], sizes[1:])]


def forward(params, x):
    *hidden, (w, b) = params
    for hw, hb in hidden:
        x = jnp.tanh(x @ hw + hb)
    return x @ w + b


def mse(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


def make_step(batch, lr):
    @jax.jit
    def step(params, moments, x, y, start, t):
        xb = jax.lax.dynamic_slice_in_dim(x, start, batch)
        yb = jax.lax.dynamic_slice_in_dim(y, start, batch)
        loss, g = jax.value_and_grad(mse)(params, xb, yb)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], g)
        fix = jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
        params = jax.tree.map(lambda p, m, v: p - lr * fix * m / (jnp.sqrt(v) + 1e-8),
                              params, m, v)
        return params, (m, v), loss
    return step


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=560_000)
    ap.add_argument("--channels", type=int, default=1024)
    ap.add_argument("--batch", type=int, default=4096)
    ap.add_argument("--steps", type=int, default=600)
    args = ap.parse_args()

    t0 = time.time()
    x, y = load_spectra(args.rows, args.channels)
    print(f"table {x.shape} made in {time.time() - t0:.1f}s", flush=True)
    x, y = jnp.asarray(x), jnp.asarray(y)
    params = init_params(jax.random.key(0), [args.channels, 512, 512, 4])
    zeros = jax.tree.map(jnp.zeros_like, params)
    moments = (zeros, zeros)
    step = make_step(args.batch, 1e-3)
    for t in range(1, args.steps + 1):
        start = (t * args.batch) % (args.rows - args.batch)
        params, moments, loss = step(params, moments, x, y, start, float(t))
        if t % 50 == 1:
            print(f"step {t:4d} mse {float(loss):.5f} {time.time() - t0:.1f}s", flush=True)


if __name__ == "__main__":
    main()
