import os
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from functools import partial

import jax
import jax.numpy as jnp


def laplacian(u):
    return (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4.0 * u)


@partial(jax.jit, static_argnames="steps")
def simulate(u0, alpha, steps):
    def body(u, _):
        u_next = u + alpha * laplacian(u)
        return u_next, u_next  # HERE
    return jax.lax.scan(body, u0, None, length=steps)


def main(n=1024, steps=2500):
    key = jax.random.PRNGKey(0)
    u0 = jax.random.uniform(key, (n, n), dtype=jnp.float32)
    for alpha in (0.05, 0.1, 0.2):
        final, trace = simulate(u0, alpha, steps)
        print(alpha, float(final.std()), float(trace[-1].mean()))


if __name__ == "__main__":
    main()
