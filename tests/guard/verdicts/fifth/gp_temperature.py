# Gaussian process on a spatial temperature field: tune on a subset, then condition on everything
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_FULL, N_TUNE = 30_000, 2_000
rng = np.random.default_rng(8)
coords = rng.uniform(0, 10, (N_FULL, 3)).astype(np.float32)
temp = (np.sin(coords[:, 0]) + 0.5 * np.cos(2 * coords[:, 1]) - 0.1 * coords[:, 2]
        + 0.1 * rng.standard_normal(N_FULL)).astype(np.float32)


def kernel(p, a, b):
    ls = jnp.exp(p["log_ls"])
    a, b = a / ls, b / ls
    d2 = (a ** 2).sum(1)[:, None] + (b ** 2).sum(1)[None, :] - 2.0 * a @ b.T
    return jnp.exp(p["log_var"]) * jnp.exp(-0.5 * jnp.maximum(d2, 0.0))


def solve(p, x, y):
    K = kernel(p, x, x)  # HERE
    K = K + (jnp.exp(p["log_noise"]) + 1e-4) * jnp.eye(len(x))
    L = jnp.linalg.cholesky(K)
    alpha = jax.scipy.linalg.cho_solve((L, True), y)
    return L, alpha


def nll(p, x, y):
    L, alpha = solve(p, x, y)
    return 0.5 * y @ alpha + jnp.log(jnp.diag(L)).sum()


params = {"log_ls": jnp.zeros(3), "log_var": jnp.zeros(()), "log_noise": jnp.log(jnp.array(0.1))}
opt = optax.adam(0.05)
state = opt.init(params)


@jax.jit
def update(params, state, x, y):
    value, g = jax.value_and_grad(nll)(params, x, y)
    up, state = opt.update(g, state)
    return optax.apply_updates(params, up), state, value


for it in range(150):
    idx = rng.choice(N_FULL, N_TUNE, replace=False)
    params, state, value = update(params, state, coords[idx], temp[idx])
    if it % 25 == 0:
        print(f"it {it} nll {float(value):.1f} ls {np.exp(np.asarray(params['log_ls'])).round(2)}", flush=True)

L, alpha = jax.jit(solve)(params, jnp.asarray(coords), jnp.asarray(temp))  # HERE
grid = jnp.asarray(rng.uniform(0, 10, (500, 3)), dtype=jnp.float32)
mean = kernel(params, grid, jnp.asarray(coords)) @ alpha
print("predicted range", float(mean.min()), float(mean.max()))
