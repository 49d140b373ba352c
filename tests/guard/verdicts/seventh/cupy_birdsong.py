"""Bird-song detector: log-mel features computed with CuPy, classifier in PyTorch."""
import argparse
import time

import cupy as cp
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SR = 24000


def mel_filterbank(n_fft, n_mels, sr=SR):
    hz = np.linspace(0, sr / 2, n_fft // 2 + 1)
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    edges = 700 * (10 ** (np.linspace(mel(50), mel(sr / 2), n_mels + 2) / 2595) - 1)
    fb = np.zeros((len(hz), n_mels), np.float32)
    for m in range(n_mels):
        lo, mid, hi = edges[m:m + 3]
        up, down = (hz - lo) / (mid - lo), (hi - hz) / (hi - mid)
        fb[:, m] = np.maximum(0, np.minimum(up, down))
    return fb


def recordings(n, seconds, rng):
    t = np.arange(int(seconds * SR), dtype=np.float32) / SR
    f0 = rng.uniform(2000, 7000, (n, 1)).astype(np.float32)
    out = rng.standard_normal((n, t.size), dtype=np.float32)
    out *= 0.3
    label = rng.integers(0, 2, n)
    out[label == 1] += np.sin(2 * np.pi * f0[label == 1] * t)
    return out, label


def log_mel(wave, fb, n_fft, hop):
    sig = cp.asarray(wave)
    n_frames = 1 + (sig.shape[1] - n_fft) // hop
    idx = cp.arange(n_frames)[:, None] * hop + cp.arange(n_fft)[None]
    frames = sig[:, idx]  # HERE
    windowed = frames * cp.hanning(n_fft).astype(cp.float32)  # HERE
    spec = cp.fft.rfft(windowed, axis=-1)  # HERE
    power = cp.abs(spec) ** 2
    mel = power @ fb
    return cp.asnumpy(cp.log(mel + 1e-6))


class Detector(nn.Module):
    def __init__(self, w=32):
        super().__init__()
        self.c1 = nn.Conv2d(1, w, 3, padding=1)
        self.b1 = nn.BatchNorm2d(w)
        self.c2 = nn.Conv2d(w, 2 * w, 3, padding=1)
        self.b2 = nn.BatchNorm2d(2 * w)
        self.out = nn.Linear(2 * w, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.relu(self.b2(self.c2(x)))
        return self.out(x.amax(2).mean(-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chunks", type=int, default=2)
    ap.add_argument("--chunk-size", type=int, default=256)
    ap.add_argument("--seconds", type=float, default=10.0)
    ap.add_argument("--n-fft", type=int, default=512)
    ap.add_argument("--hop", type=int, default=256)
    ap.add_argument("--n-mels", type=int, default=64)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=10)
    args = ap.parse_args()

    rng = np.random.default_rng(0)
    fb = cp.asarray(mel_filterbank(args.n_fft, args.n_mels))
    feats, labels = [], []
    for c in range(args.chunks):
        t0 = time.time()
        wave, y = recordings(args.chunk_size, args.seconds, rng)
        feats.append(log_mel(wave, fb, args.n_fft, args.hop))
        labels.append(y)
        print(f"chunk {c}: {feats[-1].shape} in {time.time() - t0:.1f}s", flush=True)
    x = torch.from_numpy(np.concatenate(feats)).float()
    x = ((x - x.mean()) / x.std()).transpose(1, 2)[:, None]
    y = torch.from_numpy(np.concatenate(labels)).long()

    device = torch.device("cuda")
    torch.manual_seed(0)
    net = Detector().to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        hits, total = 0, 0
        for idx in torch.randperm(len(x)).split(args.batch_size):
            xb, yb = x[idx].to(device), y[idx].to(device)
            logits = net(xb)
            loss = F.cross_entropy(logits, yb)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            hits += (logits.argmax(1) == yb).sum().item()
            total += len(yb)
        print(f"epoch {epoch} loss {loss.item():.3f} acc {hits / total:.3f}", flush=True)


if __name__ == "__main__":
    main()
