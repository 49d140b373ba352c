"""Filter a stack of frames with CuPy, then train a PyTorch regressor on the summary."""
import cupy as cp
import numpy as np
import torch
from torch import nn

FRAMES, SIZE = 60, 1024


def read_frames(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 255, (FRAMES, SIZE, SIZE), dtype=np.uint8)


def soften(volume, shift):
    return 0.5 * (volume + cp.roll(volume, shift, axis=1))


def describe(frames):
    volume = cp.asarray(frames).astype(cp.float32)
    bank = cp.stack([soften(volume, s) for s in range(1, 9)])  # HERE
    print(f"filter bank {bank.shape}, {bank.nbytes / 2 ** 30:.1f} GiB", flush=True)
    rows = bank[:, :, ::256, :]
    return cp.asnumpy(rows).reshape(-1, SIZE) / 255.0


def network(width=2048, depth=14):
    layers = [nn.Linear(SIZE, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def fit(table, steps=40, batch=16384):
    X = torch.from_numpy(table).float().cuda()
    y = X.mean(1)
    model = network().cuda()
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        idx = torch.randint(0, len(X), (batch,), device="cuda")
        loss = nn.functional.mse_loss(model(X[idx]).squeeze(-1), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"step {step}: {loss.item():.5f}", flush=True)


def main():
    frames = read_frames()
    table = describe(frames)
    print("table", table.shape, flush=True)
    fit(table)


if __name__ == "__main__":
    main()
