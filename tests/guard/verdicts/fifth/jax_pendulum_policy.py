"""Policy search through a differentiable cart simulation, horizon curriculum."""
import time
import jax
import jax.numpy as jnp
import optax

N, HID, DT = 1024, 256, 0.02


def init(key):
    k1, k2, k3 = jax.random.split(key, 3)
    return {"w1": jax.random.normal(k1, (4, HID)) * 0.5, "b1": jnp.zeros(HID),
            "w2": jax.random.normal(k2, (HID, HID)) / HID ** 0.5, "b2": jnp.zeros(HID),
            "w3": jax.random.normal(k3, (HID, 1)) * 0.01}


def policy(p, s):
    h = jnp.tanh(s @ p["w1"] + p["b1"])
    h = jnp.tanh(h @ p["w2"] + p["b2"])
    return jnp.tanh(h @ p["w3"])[:, 0] * 5.0


def dynamics(s, force):
    x, v, th, om = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
    acc = force - 0.1 * v
    om_dot = 9.8 * jnp.sin(th) - acc * jnp.cos(th) - 0.2 * om
    return jnp.stack([x + DT * v, v + DT * acc, th + DT * om, om + DT * om_dot], axis=1)


def cost(p, s0, horizon):
    def step(s, _):
        u = policy(p, s)
        s = jnp.clip(dynamics(s, u), -20.0, 20.0)
        return s, (1.0 - jnp.cos(s[:, 2]) + 0.05 * s[:, 0] ** 2 + 0.001 * u ** 2).mean()

    _, c = jax.lax.scan(step, s0, None, length=horizon)  # HERE
    return c.mean()


opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


def make_update(horizon):
    @jax.jit
    def update(p, st, key):
        s0 = jax.random.normal(key, (N, 4)) * jnp.array([0.5, 0.1, 0.3, 0.1])
        c, g = jax.value_and_grad(cost)(p, s0, horizon)
        up, st = opt.update(g, st, p)
        return optax.apply_updates(p, up), st, c
    return update


key = jax.random.key(0)
params = init(key)
state = opt.init(params)
for horizon in (100, 400, 4000):
    update = make_update(horizon)
    t0 = time.time()
    for it in range(60):
        key, sub = jax.random.split(key)
        params, state, c = update(params, state, sub)
        if it % 20 == 0:
            print(f"horizon {horizon} it {it} cost {float(c):.4f} {time.time() - t0:.1f}s", flush=True)
