"""Rank documents with a small JAX model on top of a PyTorch text encoder that runs in its own process."""
from concurrent.futures import ProcessPoolExecutor
import multiprocessing as mp
import numpy as np
import jax
import jax.numpy as jnp
import optax

DIM = 1024


def encode(seed, n_docs):
    import torch
    from torch import nn
    torch.manual_seed(seed)
    with torch.device("cuda"):
        layer = nn.TransformerEncoderLayer(DIM, 16, 4 * DIM, batch_first=True)
        enc = nn.TransformerEncoder(layer, 24).eval()
    out = []
    with torch.no_grad():
        for _ in range(n_docs // 64):
            tokens = torch.randn(64, 128, DIM, device="cuda")
            out.append(enc(tokens).mean(1).cpu())
    return torch.cat(out).numpy()


def score(p, q, d):
    h = jax.nn.gelu(jnp.concatenate([q, d, q * d], axis=-1) @ p["w1"])
    return (h @ p["w2"])[..., 0]


def loss_fn(p, q, pos, neg):
    return jax.nn.softplus(score(p, q, neg) - score(p, q, pos)).mean()


def main():
    key = jax.random.key(0)  # HERE
    params = {"w1": jax.random.normal(key, (3 * DIM, 512)) * 0.02, "w2": jnp.zeros((512, 1))}
    opt = optax.adam(1e-3)
    state = opt.init(params)

    @jax.jit
    def update(params, state, q, pos, neg):
        loss, g = jax.value_and_grad(loss_fn)(params, q, pos, neg)
        up, state = opt.update(g, state)
        return optax.apply_updates(params, up), state, loss

    rng = np.random.default_rng(0)
    with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
        for rnd in range(10):
            docs = pool.submit(encode, rnd, 2048).result()  # HERE
            queries = docs + 0.3 * rng.standard_normal(docs.shape).astype(np.float32)
            for step in range(200):
                i, j = rng.integers(0, len(docs), (2, 128))
                params, state, loss = update(params, state, queries[i], docs[i], docs[j])
            print(f"round {rnd} loss {float(loss):.4f}", flush=True)


if __name__ == "__main__":
    main()
