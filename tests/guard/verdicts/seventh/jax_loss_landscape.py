"""Train an MLP in plain JAX and project its optimisation path on the top PCA directions."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np


def init_mlp(key, sizes):
    params = []
    for k, (m, n) in zip(jax.random.split(key, len(sizes) - 1), zip(sizes[:-1], sizes[1:])):
        params.append({"w": jax.random.normal(k, (m, n)) * np.sqrt(2.0 / m), "b": jnp.zeros(n)})
    return params


def forward(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, x, y):
    logp = jax.nn.log_softmax(forward(params, x))
    return -jnp.mean(jnp.take_along_axis(logp, y[:, None], axis=1))


def adam_init(params):
    zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
    return zeros, jax.tree_util.tree_map(jnp.zeros_like, params), 0


@jax.jit
def update(params, opt, x, y, lr):
    m, v, t = opt
    loss, g = jax.value_and_grad(loss_fn)(params, x, y)
    t = t + 1
    tm = jax.tree_util.tree_map
    m = tm(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = tm(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    c1, c2 = 1 - 0.9 ** t, 1 - 0.999 ** t
    params = tm(lambda p, a, b: p - lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), params, m, v)
    return params, (m, v, t), loss


class PathRecorder:
    def __init__(self, every):
        self.every = every
        self.points, self.losses = [], []

    def __call__(self, step, params, loss):
        if step % self.every == 0:
            self.points.append(params)  # HERE
            self.losses.append(float(loss))

    def pca(self, k=2):
        flat = np.stack([np.concatenate([np.ravel(l) for l in jax.tree_util.tree_leaves(p)])
                         for p in self.points])
        flat -= flat[-1]
        gram = flat @ flat.T
        w, u = np.linalg.eigh(gram)
        return u[:, ::-1][:, :k] * np.sqrt(np.maximum(w[::-1][:k], 0)), w[::-1] / w.sum()


def digits(rng, n):
    protos = rng.normal(size=(10, 784)).astype(np.float32)
    y = rng.integers(0, 10, n)
    return protos[y] + rng.normal(scale=2.0, size=(n, 784)).astype(np.float32), y.astype(np.int32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--width", type=int, default=2048)
    ap.add_argument("--depth", type=int, default=3)
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--record-every", type=int, default=10)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    rng = np.random.default_rng(args.seed)
    x, y = digits(rng, 20000)
    sizes = [784] + [args.width] * args.depth + [10]
    params = init_mlp(jax.random.PRNGKey(args.seed), sizes)
    opt = adam_init(params)
    path = PathRecorder(args.record_every)
    t0 = time.time()
    for step in range(args.steps):
        idx = rng.integers(0, len(x), args.batch)
        params, opt, loss = update(params, opt, jnp.asarray(x[idx]), jnp.asarray(y[idx]), args.lr)
        path(step, params, loss)
        if step % 50 == 0:
            print(f"step {step} loss {float(loss):.4f} ({time.time() - t0:.1f}s)", flush=True)
    coords, explained = path.pca()
    print("explained", explained[:2], "path length", len(coords))


if __name__ == "__main__":
    main()
