"""Tags bird species in field recordings from log spectrograms."""
import argparse
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

RATE = 32_000
SPECIES = 24
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def waveform(clip, seconds=10):
    """Stands for reading a file: a chirp whose pitch depends on the species, under wind noise."""
    gen = torch.Generator().manual_seed(clip)
    time = torch.arange(RATE * seconds) / RATE
    pitch = 1500 + 250 * (clip % SPECIES)
    chirp = torch.sin(2 * math.pi * pitch * time * (1 + 0.02 * torch.sin(12 * time)))
    return chirp * (torch.rand((), generator=gen) + 0.2) + 0.3 * torch.randn(len(time), generator=gen)


@functools.lru_cache(maxsize=None)  # HERE
def log_spectrogram(clip, n_fft=1024, hop=128):
    window = torch.hann_window(n_fft, device=DEVICE)
    spec = torch.stft(waveform(clip).to(DEVICE), n_fft, hop, window=window, return_complex=True)
    return torch.log1p(spec.abs())


def batch_of(clips):
    x = torch.stack([log_spectrogram(clip) for clip in clips])[:, None]
    y = torch.tensor([clip % SPECIES for clip in clips], device=DEVICE)
    return (x - x.mean()) / x.std(), y


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 7, 4, 3), nn.ReLU(), nn.Conv2d(16, 32, 5, 3, 2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d((8, 1)), nn.Flatten(),
            nn.Linear(64 * 8, SPECIES),
        )

    def forward(self, x):
        return self.net(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=6000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Tagger().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        order = torch.randperm(args.clips).tolist()
        correct = 0
        for step in range(len(order) // args.batch):
            x, y = batch_of(order[step * args.batch:(step + 1) * args.batch])
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == y).sum().item()
            if step % 10 == 0:
                seen = (step + 1) * args.batch
                print(f"epoch {epoch} step {step} loss {loss.item():.3f} accuracy {correct / seen:.2f}", flush=True)


if __name__ == "__main__":
    main()
