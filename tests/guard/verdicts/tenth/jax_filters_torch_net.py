"""Denoise ECG traces: classical filter bank in JAX, network in PyTorch."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn


def gabor_bank(n, width):
    t = np.linspace(-1, 1, width)
    rows = [np.exp(-4 * t ** 2) * np.cos(np.pi * (k + 1) * t) for k in range(n)]
    return np.stack(rows).astype(np.float32)


@jax.jit
def filter_features(traces, bank):
    """(batch, time) -> (batch, filters, time), magnitude in a log scale."""
    conv = jax.vmap(jax.vmap(lambda x, f: jnp.convolve(x, f, mode="same"), (None, 0)), (0, None))
    return jnp.log1p(jnp.abs(conv(traces, bank)))


def make_traces(rng, n, length):
    t = np.arange(length) / 250.0
    rate = rng.uniform(0.8, 2.0, size=(n, 1))
    clean = np.sin(2 * np.pi * rate * t) ** 15
    noisy = clean + 0.3 * rng.standard_normal((n, length))
    return noisy.astype(np.float32), clean.astype(np.float32)


class Denoiser(nn.Module):
    def __init__(self, filters, width=128, depth=6):
        super().__init__()
        self.first = nn.Conv1d(filters, width, 1)
        self.body = nn.ModuleList(nn.Conv1d(width, width, 9, padding=4) for _ in range(depth))
        self.last = nn.Conv1d(width, 1, 1)

    def forward(self, x):
        x = self.first(x)
        for conv in self.body:
            x = x + nn.functional.gelu(conv(x))
        return self.last(x).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--length", type=int, default=2048)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--filters", type=int, default=16)
    args = ap.parse_args()

    rng = np.random.default_rng(0)
    bank = jnp.asarray(gabor_bank(args.filters, 65))  # HERE
    print("filter bank", bank.shape, "on", jax.devices()[0])

    torch.manual_seed(0)
    net = Denoiser(args.filters).cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(args.steps):
        noisy, clean = make_traces(rng, args.batch, args.length)
        feats = np.asarray(filter_features(noisy, bank))
        x = torch.from_numpy(feats.copy()).cuda()
        y = torch.from_numpy(clean).cuda()
        loss = nn.functional.smooth_l1_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
