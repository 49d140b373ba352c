"""Long-document classifier in flax with a hand-written attention layer."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

SEQ, BATCH, VOCAB, CLASSES = 8192, 4, 4096, 5


class SelfAttention(nn.Module):
    dim: int = 256
    heads: int = 16

    @nn.compact
    def __call__(self, x):
        b, s, _ = x.shape
        qkv = nn.Dense(3 * self.dim)(x).reshape(b, s, 3, self.heads, -1)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])  # HERE
        y = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v)
        return nn.Dense(self.dim)(y.reshape(b, s, self.dim))


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(VOCAB, 256)(ids)
        for _ in range(2):
            x = x + SelfAttention()(nn.LayerNorm()(x))
            x = x + nn.Dense(256)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))
        return nn.Dense(CLASSES)(x.mean(axis=1))


@jax.jit
def train_step(state, ids, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, ids)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def main():
    rng = np.random.default_rng(1)
    model = Classifier()
    params = model.init(jax.random.PRNGKey(0), jnp.zeros((1, 128), jnp.int32))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    print("parameters:", sum(p.size for p in jax.tree_util.tree_leaves(params)), flush=True)
    for step in range(20):
        ids = rng.integers(0, VOCAB, (BATCH, SEQ))
        labels = rng.integers(0, CLASSES, (BATCH,))
        state, loss = train_step(state, ids, labels)  # HERE
        print(f"step {step} loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
