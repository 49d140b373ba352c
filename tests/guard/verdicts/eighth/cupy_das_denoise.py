"""Distributed acoustic sensing: CuPy band-pass and envelope, then a PyTorch 1-D denoiser."""
import argparse
import time

import cupy as cp
import torch
import torch.nn as nn
import torch.nn.functional as F


def band_filter(n, fs, low, high):
    freqs = cp.fft.fftfreq(n, d=1.0 / fs).astype(cp.float32)
    taper = 1.0 / (1.0 + cp.exp(-(cp.abs(freqs) - low))) * 1.0 / (1.0 + cp.exp(cp.abs(freqs) - high))
    analytic = cp.where(freqs > 0, 2.0, 0.0).astype(cp.float32)
    return (taper * analytic).astype(cp.complex64)


def read_recording(channels, samples, seed):
    rng = cp.random.default_rng(seed)
    return rng.standard_normal((channels, samples), dtype=cp.float32)


def preprocess(recording, fs, low, high, decimate):
    channels, samples = recording.shape
    spectrum = cp.fft.fft(recording, axis=1)  # HERE
    filtered = spectrum * band_filter(samples, fs, low, high)[None]
    envelope = cp.abs(cp.fft.ifft(filtered, axis=1))
    level = cp.log1p(envelope)
    level = level.reshape(channels, samples // decimate, decimate).mean(axis=2)
    return (level - level.mean()) / level.std()


class Denoiser(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.inp = nn.Conv1d(channels, width, 9, padding=4)
        self.mid = nn.ModuleList([nn.Conv1d(width, width, 9, padding=4 * d, dilation=d) for d in (1, 2, 4)])
        self.out = nn.Conv1d(width, channels, 9, padding=4)

    def forward(self, x):
        h = F.gelu(self.inp(x))
        for conv in self.mid:
            h = h + F.gelu(conv(h))
        return self.out(h)


def windows(records, batch, length):
    idx = torch.randint(0, len(records), (batch,)).tolist()
    starts = torch.randint(0, records[0].shape[1] - length, (batch,)).tolist()
    return torch.stack([records[i][:, s:s + length] for i, s in zip(idx, starts)])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--recordings", type=int, default=12)
    ap.add_argument("--channels", type=int, default=64)
    ap.add_argument("--samples", type=int, default=1 << 20)
    ap.add_argument("--decimate", type=int, default=64)
    ap.add_argument("--window", type=int, default=2048)
    ap.add_argument("--batch", type=int, default=192)
    ap.add_argument("--width", type=int, default=128)
    ap.add_argument("--steps", type=int, default=500)
    args = ap.parse_args()

    t0 = time.time()
    records = []
    for i in range(args.recordings):
        rec = read_recording(args.channels, args.samples, seed=i)
        feats = preprocess(rec, fs=1000.0, low=5.0, high=60.0, decimate=args.decimate)  # HERE
        records.append(torch.from_dlpack(feats))
        del rec, feats
    print(f"{len(records)} recordings preprocessed in {time.time() - t0:.1f}s, {tuple(records[0].shape)} each")

    torch.manual_seed(0)
    net = Denoiser(args.channels, args.width).cuda()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(args.steps):
        clean = windows(records, args.batch, args.window)
        drop = (torch.rand(args.batch, args.channels, 1, device="cuda") < 0.3).float()
        noisy = clean * (1 - drop)
        loss = ((net(noisy) - clean) * drop).pow(2).sum() / (drop.sum() * args.window)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} masked mse {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
