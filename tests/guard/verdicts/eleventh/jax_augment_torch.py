"""Signals are augmented with a jitted JAX function, the classifier is trained in PyTorch."""
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

LENGTH = 1024


@jax.jit
def augment(key, signal):
    k1, k2 = jax.random.split(key)
    scale = 1.0 + 0.1 * jax.random.normal(k1, (signal.shape[0], 1))
    noise = 0.05 * jax.random.normal(k2, signal.shape)
    return jnp.tanh(scale * signal + noise)


class Augmented:
    def __init__(self, n_batches, batch, seed=0):
        rng = np.random.default_rng(seed)
        self.base = rng.standard_normal((batch, LENGTH)).astype(np.float32)
        self.key = jax.random.PRNGKey(seed)  # HERE
        self.n = n_batches

    def __iter__(self):
        for _ in range(self.n):
            self.key, sub = jax.random.split(self.key)
            x = np.array(augment(sub, self.base))
            yield torch.from_numpy(x), torch.from_numpy((x[:, :16].sum(1) > 0).astype(np.int64))


def classifier(width=2048, depth=10):
    layers = [nn.Linear(LENGTH, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 2))


def main():
    data = Augmented(n_batches=25, batch=32768)
    model = classifier().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step, (x, y) in enumerate(data):
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"step {step:2d}  loss {loss.item():.4f}", flush=True)
    print("finished")


if __name__ == "__main__":
    main()
