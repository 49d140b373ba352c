"""Preprocess mass spectra with CuPy, then train an autoencoder on them with PyTorch."""
import time

import cupy as cp
import numpy as np
import torch
import torch.nn as nn


def synthetic_spectra(n, bins, seed=0):
    rng = np.random.default_rng(seed)
    spectra = rng.random((n, bins), dtype=np.float32)
    spectra[:, ::37] += 3.0
    return spectra


def preprocess(raw):
    """Baseline removal, square-root scaling and standardisation, in double precision."""
    x = cp.asarray(raw).astype(cp.float64)  # HERE
    x -= x.min(axis=1, keepdims=True)
    x = cp.sqrt(x)
    x -= x.mean(axis=0)
    x /= x.std(axis=0) + 1e-6
    return cp.asnumpy(x.astype(cp.float32))


class AutoEncoder(nn.Module):
    def __init__(self, bins, width=4096, code=32):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(bins, width), nn.GELU(),
                                    nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, code))
        self.decode = nn.Sequential(nn.Linear(code, width), nn.GELU(),
                                    nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, width), nn.GELU(),
                                    nn.Linear(width, bins))

    def forward(self, x):
        return self.decode(self.encode(x))


def train(data, steps=200, batch=8192):
    torch.manual_seed(0)
    model = AutoEncoder(data.shape[1]).cuda()
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    data = torch.from_numpy(data)
    t0 = time.time()
    for step in range(steps):
        rows = torch.randint(0, len(data), (batch,))
        x = data[rows].cuda()
        loss = (model(x) - x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:3d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)", flush=True)
    return model


def main():
    raw = synthetic_spectra(160_000, 1024)
    print("raw spectra", raw.shape, raw.dtype, flush=True)
    clean = preprocess(raw)
    print(f"preprocessed, mean {clean.mean():.3f} std {clean.std():.3f}", flush=True)
    model = train(clean)
    torch.save(model.state_dict(), "/tmp/spectra_ae.pt")


if __name__ == "__main__":
    main()
