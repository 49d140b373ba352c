"""Leaf species from photographs: a convolutional network in plain JAX, batches gathered on the device."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def synthetic_leaves(count, size, species, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, species, count).astype(np.int32)
    photo = rng.integers(0, 128, (count, size, size, 3), dtype=np.uint8)
    photo += (label * (127 // species)).astype(np.uint8)[:, None, None, None]
    return photo, label


class Leaves:
    def __init__(self, count, size, species):
        photo, label = synthetic_leaves(count, size, species)
        photo = jnp.asarray(photo)
        self.label = jnp.asarray(label)
        self.photo = photo.astype(jnp.float32) / 255.0  # HERE
        self.mean = jnp.mean(self.photo[:1000], axis=(0, 1, 2))

    def __len__(self):
        return len(self.label)

    def batches(self, key, batch):
        order = jax.random.permutation(key, len(self))
        for at in range(0, len(self) - batch + 1, batch):
            index = order[at:at + batch]
            yield self.photo[index] - self.mean, self.label[index]


def conv(x, w, stride):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def init(key, species):
    shapes = {"c1": (5, 5, 3, 32), "c2": (3, 3, 32, 64), "c3": (3, 3, 64, 128), "out": (128, species)}
    keys = jax.random.split(key, len(shapes))
    return {name: jax.random.normal(k, shape) * (2 / np.prod(shape[:-1])) ** 0.5
            for k, (name, shape) in zip(keys, shapes.items())}


def apply(params, x):
    x = jax.nn.relu(conv(x, params["c1"], 2))
    x = jax.nn.relu(conv(x, params["c2"], 2))
    x = jax.nn.relu(conv(x, params["c3"], 2))
    return x.mean((1, 2)) @ params["out"]


def loss_fn(params, x, label):
    logp = jax.nn.log_softmax(apply(params, x))
    return -jnp.take_along_axis(logp, label[:, None], 1).mean()


@jax.jit
def step(params, x, label):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, label)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=48_000)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--species", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    leaves = Leaves(args.count, args.size, args.species)
    print(f"{len(leaves)} photographs", flush=True)
    key = jax.random.key(0)
    params = init(key, args.species)
    for epoch in range(args.epochs):
        for i, (x, label) in enumerate(leaves.batches(jax.random.fold_in(key, epoch), args.batch)):
            params, loss = step(params, x, label)
            if i % 100 == 0:
                print(f"epoch {epoch} step {i} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
