"""Score a test set with an MLP in JAX and compute calibration at the end."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

IN, HIDDEN, OUT = 512, 2048, 8192
BATCH, BATCHES = 1024, 400


def init(key, sizes):
    params = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        params.append((jax.random.normal(sub, (fan_in, fan_out)) / np.sqrt(fan_in), jnp.zeros(fan_out)))
    return params


@jax.jit
def predict(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return jax.nn.softmax(x @ w + b)


@partial(jax.jit, static_argnames="bins")
def expected_calibration_error(probs, labels, bins=15):
    conf, hit = probs.max(-1), probs.argmax(-1) == labels
    which = jnp.clip((conf * bins).astype(int), 0, bins - 1)
    total = jnp.zeros(bins).at[which].add(1)
    gap = jnp.zeros(bins).at[which].add(conf - hit)
    return jnp.abs(gap).sum() / total.sum()


def main():
    rng = np.random.default_rng(0)
    params = init(jax.random.PRNGKey(0), (IN, HIDDEN, OUT))
    print("devices:", jax.devices())
    probs, labels = [], []
    for i in range(BATCHES):
        x = rng.standard_normal((BATCH, IN), dtype=np.float32)
        probs.append(predict(params, x))  # HERE
        labels.append(rng.integers(0, OUT, BATCH))
        if i % 20 == 0:
            print(f"batch {i} max prob {float(probs[-1].max()):.4f}", flush=True)
    ece = expected_calibration_error(jnp.concatenate(probs), jnp.asarray(np.concatenate(labels)))
    print("ECE", float(ece))


if __name__ == "__main__":
    main()
