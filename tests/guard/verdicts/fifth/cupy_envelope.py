"""Clean vibration recordings with CuPy, train an anomaly autoencoder on the summaries with PyTorch."""
import cupy as cp
import numpy as np
import torch
import torch.nn as nn

N_REC, N_SAMP, N_BINS = 2000, 100_000, 2000
rng = np.random.default_rng(0)


def recordings():
    x = rng.standard_normal((N_REC, N_SAMP), dtype=np.float32)
    t = np.arange(N_SAMP, dtype=np.float32)
    for i in range(0, N_REC, 10):
        x[i] += np.sin(t * rng.uniform(0.01, 0.2))
    return x


def envelope(raw):
    x = cp.asarray(raw)  # HERE
    z = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)  # HERE
    energy = cp.abs(z) ** 0.5
    peaks = cp.maximum(energy, cp.roll(energy, 1, axis=1))
    binned = peaks.reshape(N_REC, N_BINS, -1).mean(axis=2)
    return cp.asnumpy(binned)


def autoencoder(d=N_BINS, w=8192):
    return nn.Sequential(nn.Linear(d, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(),
                         nn.Linear(w, w), nn.ReLU(), nn.Linear(w, d))


def main():
    raw = recordings()
    print("recordings ready", raw.shape, flush=True)
    feats = torch.from_numpy(envelope(raw)).float()
    feats = (feats - feats.mean(0)) / feats.std(0)
    print("features", tuple(feats.shape), flush=True)

    net = autoencoder().cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    for epoch in range(20):
        total = 0.0
        for idx in torch.randperm(N_REC).split(200):
            b = feats[idx].cuda()
            loss = nn.functional.mse_loss(net(b), b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(idx)
        print(f"epoch {epoch} mse {total / N_REC:.4f}", flush=True)

    with torch.no_grad():
        b = feats.cuda()
        err = (net(b) - b).square().mean(1).cpu()
    print("most anomalous:", err.topk(10).indices.tolist())


if __name__ == "__main__":
    main()
