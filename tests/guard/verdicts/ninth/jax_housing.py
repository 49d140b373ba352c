"""House prices from tabular features with a small network, in plain JAX."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np


def make_homes(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 16)).astype(np.float32)
    price = 2.0 * x[:, 0] - x[:, 1] * x[:, 2] + np.abs(x[:, 3]) + 0.1 * rng.normal(size=rows)
    return x, price.astype(np.float32)


def init_network(key, sizes):
    layers = []
    for cin, cout in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        layers.append({"w": jax.random.normal(sub, (cin, cout)) * (2 / cin) ** 0.5, "b": jnp.zeros(cout)})
    return layers


def predict(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def loss_fn(layers, x, y):
    return jnp.mean((predict(layers, x)[:, 0] - y) ** 2)


@jax.jit
def train_step(layers, momentum, x, y, lr):
    loss, grads = jax.value_and_grad(loss_fn)(layers, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    layers = jax.tree.map(lambda p, m: p - lr * m, layers, momentum)
    return layers, momentum, loss


def report(layers, x, y):
    """Prints how well held-out homes are predicted."""
    start = time.time()
    error = predict(layers, x) - y  # HERE
    rmse = jnp.sqrt(jnp.mean(error ** 2))
    mae = jnp.mean(jnp.abs(error))
    r2 = 1 - jnp.sum(error ** 2) / jnp.sum((y - jnp.mean(y)) ** 2)
    print(f"rmse {rmse:.3f} mae {mae:.3f} r2 {r2:.3f} in {time.time() - start:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--held-out", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    x, y = make_homes(args.rows + args.held_out)
    train_x, train_y = x[:args.rows], y[:args.rows]
    test_x, test_y = jnp.asarray(x[args.rows:]), jnp.asarray(y[args.rows:])
    layers = init_network(jax.random.key(0), [16, 256, 256, 1])
    momentum = jax.tree.map(jnp.zeros_like, layers)
    rng = np.random.default_rng(1)
    for epoch in range(args.epochs):
        order = rng.permutation(args.rows)
        for at in range(0, args.rows - args.batch + 1, args.batch):
            index = order[at:at + args.batch]
            layers, momentum, loss = train_step(layers, momentum, train_x[index], train_y[index], args.lr)
        print(f"epoch {epoch} loss {loss:.4f}", flush=True)
        report(layers, test_x, test_y)


if __name__ == "__main__":
    main()
