"""Gaussian process regression by conjugate gradients on the full kernel matrix."""
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)  # HERE

N, DIM = 17_000, 8
LENGTHSCALE, NOISE = 1.5, 0.1


def load_data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (N, DIM))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] ** 2 + NOISE * rng.standard_normal(N)
    return jnp.asarray(x), jnp.asarray(y - y.mean())


def kernel(a, b):
    sq = (a ** 2).sum(1)[:, None] + (b ** 2).sum(1)[None, :]
    cross = a @ b.T
    d2 = sq - 2.0 * cross
    del sq, cross
    return jnp.exp(-0.5 * d2 / LENGTHSCALE ** 2)


@jax.jit
def cg_step(K, state):
    alpha, r, p, rs = state
    Kp = K @ p + NOISE ** 2 * p
    a = rs / (p @ Kp)
    alpha = alpha + a * p
    r = r - a * Kp
    new = r @ r
    return alpha, r, r + (new / rs) * p, new


def solve(K, y, iters=40):
    state = (jnp.zeros_like(y), y, y, y @ y)
    for i in range(iters):
        state = cg_step(K, state)
        if i % 5 == 0:
            print(f"iteration {i}: residual {float(jnp.sqrt(state[3])):.4e}", flush=True)
    return state[0]


def main():
    x, y = load_data()
    print("data", x.shape, x.dtype)
    t0 = time.time()
    K = kernel(x, x)
    K.block_until_ready()
    print(f"kernel matrix {K.shape} in {time.time() - t0:.1f}s", flush=True)
    alpha = solve(K, y)
    fit = kernel(x[:500], x) @ alpha
    print("rmse on 500 training points", float(jnp.sqrt(jnp.mean((fit - y[:500]) ** 2))))


if __name__ == "__main__":
    main()
