"""Flax MLP-mixer style classifier; averages the weights of the second half of training."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


class Net(nn.Module):
    width: int = 2048
    depth: int = 5
    classes: int = 20

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            h = nn.LayerNorm()(x)
            x = x + nn.Dense(self.width)(nn.gelu(h))
        return nn.Dense(self.classes)(x)


@jax.jit
def train_step(state, x, y):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, x)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss, (logits.argmax(-1) == y).mean()

    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), loss, acc


def stream(steps, bs=256, d=784, classes=20, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((classes, d)).astype(np.float32)
    for _ in range(steps):
        y = rng.integers(0, classes, bs)
        yield centers[y] * 0.2 + rng.standard_normal((bs, d)).astype(np.float32), y.astype(np.int32)


STEPS = 4000
net = Net()
params = net.init(jax.random.key(0), jnp.ones((1, 784)))["params"]
state = train_state.TrainState.create(
    apply_fn=net.apply, params=params,
    tx=optax.adamw(optax.cosine_decay_schedule(3e-4, STEPS), weight_decay=0.01))

trajectory = []
for step, (x, y) in enumerate(stream(STEPS)):
    state, loss, acc = train_step(state, x, y)
    if step >= STEPS // 2 and step % 10 == 0:
        trajectory.append(state.params)  # HERE
    if step % 200 == 0:
        print(f"step {step} loss {float(loss):.3f} acc {float(acc):.3f}", flush=True)

average = jax.tree.map(lambda *w: sum(w) / len(w), *trajectory)
x, y = next(stream(1, bs=4096))
pred = net.apply({"params": average}, x).argmax(-1)
print("accuracy of averaged weights", float((pred == y).mean()))
