"""Fit the feed and kill fields of a Gray-Scott system to an observed final pattern."""
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import optax

GRID = 256
SAMPLES = 8
STEPS = 3000
DU, DV, DT = 0.16, 0.08, 1.0


def laplacian(z):
    return (jnp.roll(z, 1, -1) + jnp.roll(z, -1, -1) + jnp.roll(z, 1, -2)
            + jnp.roll(z, -1, -2) - 4.0 * z)


def reaction_step(state, params):
    u, v = state
    feed = 0.02 + 0.04 * jax.nn.sigmoid(params["feed"])
    kill = 0.05 + 0.02 * jax.nn.sigmoid(params["kill"])
    uvv = u * v * v
    u_next = u + DT * (DU * laplacian(u) - uvv + feed * (1.0 - u))
    v_next = v + DT * (DV * laplacian(v) + uvv - (feed + kill) * v)
    return jnp.clip(u_next, 0.0, 1.5), jnp.clip(v_next, 0.0, 1.5)


def simulate(params, state, steps):
    def body(carry, _):
        return reaction_step(carry, params), None

    final, _ = jax.lax.scan(body, state, None, length=steps)  # HERE
    return final


def initial_state(key):
    u = jnp.ones((SAMPLES, GRID, GRID))
    v = jnp.zeros((SAMPLES, GRID, GRID))
    c = GRID // 2
    u = u.at[:, c - 12:c + 12, c - 12:c + 12].set(0.5)
    v = v.at[:, c - 12:c + 12, c - 12:c + 12].set(0.25)
    return u, v + 0.02 * jax.random.uniform(key, v.shape)


def objective(params, state, target):
    _, v = simulate(params, state, STEPS)
    smooth = sum(jnp.mean(jnp.square(laplacian(p))) for p in params.values())
    return jnp.mean(jnp.square(v - target)) + 1e-3 * smooth


def main():
    key = jax.random.PRNGKey(0)
    truth = {"feed": jnp.full((GRID, GRID), -0.5), "kill": jnp.full((GRID, GRID), 0.3)}
    state = initial_state(key)
    forward = jax.jit(simulate, static_argnums=2)
    _, target = forward(truth, state, STEPS)
    print("target mean", float(target.mean()), flush=True)

    params = {"feed": jnp.zeros((GRID, GRID)), "kill": jnp.zeros((GRID, GRID))}
    opt = optax.adam(0.05)
    opt_state = opt.init(params)
    grad = jax.jit(jax.value_and_grad(objective))
    for it in range(50):
        loss, g = grad(params, state, target)
        updates, opt_state = opt.update(g, opt_state)
        params = optax.apply_updates(params, updates)
        print(f"iter {it} loss {float(loss):.6f}", flush=True)


if __name__ == "__main__":
    main()
