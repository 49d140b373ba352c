"""Normalise spectra with CuPy, then train a regressor on them with PyTorch."""
import cupy as cp
import numpy as np
import torch
from torch import nn

ROWS, CHANNELS, BATCH = 114_688, 4096, 8192


def read_spectra():
    rng = np.random.default_rng(15)
    return rng.random((ROWS, CHANNELS), dtype=np.float32), rng.random(ROWS, dtype=np.float32)


def normalise(spectra):
    gpu = cp.asarray(spectra)  # HERE
    gpu -= gpu.mean(axis=0)
    gpu /= gpu.max(axis=0)
    return cp.asnumpy(gpu)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(CHANNELS, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    torch.manual_seed(0)
    spectra, target = read_spectra()
    spectra = normalise(spectra)
    print("normalised", spectra.shape, flush=True)

    x, y = torch.from_numpy(spectra), torch.from_numpy(target)
    model = Regressor().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(3):
        for start in range(0, ROWS, BATCH):
            xb, yb = x[start : start + BATCH].cuda(), y[start : start + BATCH].cuda()
            loss = nn.functional.mse_loss(model(xb), yb)  # HERE
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} mse {loss.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
