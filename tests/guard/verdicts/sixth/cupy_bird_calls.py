"""Bird call classification: log-mel features with CuPy, transformer in PyTorch."""
import argparse
import time

import cupy as cp
import numpy as np
import torch
import torch.nn as nn

RATE, WIN, HOP, NFFT, MELS = 16000, 400, 160, 512, 80


def synth_calls(n, seconds, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(RATE * seconds, dtype=np.float32) / RATE
    freq = rng.uniform(800, 5000, (n, 1)).astype(np.float32)
    label = ((freq[:, 0] - 800) / 4200 * 20).astype(np.int64)
    return np.sin(2 * np.pi * freq * t[None], dtype=np.float32), label


def mel_matrix():
    hz = np.linspace(0, RATE / 2, NFFT // 2 + 1)
    mel = 2595 * np.log10(1 + hz / 700)
    centres = np.linspace(mel[0], mel[-1], MELS + 2)
    up = (mel[:, None] - centres[:-2]) / (centres[1:-1] - centres[:-2])
    down = (centres[2:] - mel[:, None]) / (centres[2:] - centres[1:-1])
    return cp.asarray(np.maximum(0, np.minimum(up, down)).astype(np.float32))


def log_mel(wave):
    x = cp.asarray(wave)
    n_frames = 1 + (x.shape[1] - WIN) // HOP
    frames = cp.lib.stride_tricks.as_strided(
        x, (x.shape[0], n_frames, WIN), (x.strides[0], x.strides[1] * HOP, x.strides[1]))
    window = cp.hanning(WIN).astype(cp.float32)
    spec = cp.fft.rfft(frames * window, n=NFFT, axis=-1)
    power = cp.abs(spec) ** 2
    feats = cp.log(power @ mel_matrix() + 1e-6)
    return cp.asnumpy(feats)


class Classifier(nn.Module):
    def __init__(self, dim=768, depth=12):
        super().__init__()
        self.sub = nn.Conv1d(MELS, dim, 4, stride=4)
        layer = nn.TransformerEncoderLayer(dim, 12, 4 * dim, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, depth)
        self.out = nn.Linear(dim, 20)

    def forward(self, x):
        return self.out(self.enc(self.sub(x.transpose(1, 2)).transpose(1, 2)).mean(1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=600)
    ap.add_argument("--batch", type=int, default=8)
    args = ap.parse_args()
    wave, label = synth_calls(args.clips, 10)
    start = time.time()
    feats = log_mel(wave)  # HERE
    print(f"features {feats.shape} in {time.time() - start:.1f}s", flush=True)

    feats, label = torch.from_numpy(feats), torch.from_numpy(label)
    model = Classifier().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for epoch in range(5):
        for i, idx in enumerate(torch.randperm(len(feats)).split(args.batch)):
            loss = nn.functional.cross_entropy(model(feats[idx].cuda()), label[idx].cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 10 == 0:
                print(f"epoch {epoch} {i}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
