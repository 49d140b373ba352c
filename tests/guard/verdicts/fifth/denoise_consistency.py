"""Waveform denoiser with a consistency term that is switched on after a warm-up."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

WARMUP_EPOCHS = 3
device = torch.device("cuda")


class Tones(Dataset):
    def __init__(self, n=8000, length=8192, sr=16000):
        self.n, self.length, self.sr = n, length, sr

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        t = np.arange(self.length) / self.sr
        y = sum(rng.uniform(0.1, 0.5) * np.sin(2 * np.pi * rng.uniform(80, 4000) * t) for _ in range(6))
        x = y + 0.2 * rng.standard_normal(self.length)
        return torch.tensor(x, dtype=torch.float32)[None], torch.tensor(y, dtype=torch.float32)[None]


class Denoiser(nn.Module):
    def __init__(self, ch=16, depth=6):
        super().__init__()
        layers = [nn.Conv1d(1, ch, 9, padding=4), nn.ReLU()]
        for i in range(depth):
            layers += [nn.Conv1d(ch, ch, 9, padding=4 * 2 ** i, dilation=2 ** i), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv1d(ch, 1, 1)

    def forward(self, x):
        return x + self.head(self.body(x))


def main():
    torch.manual_seed(0)
    net = Denoiser().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4)
    loader = DataLoader(Tones(), batch_size=16, shuffle=True, drop_last=True)

    for epoch in range(10):
        running_l1, running_cons, n = 0.0, 0.0, 0
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            pred = net(x)
            loss = F.l1_loss(pred, y)
            running_l1 += loss.item()
            if step % 5 == 0:
                cons = F.mse_loss(net(x + 0.05 * torch.randn_like(x)), pred.detach())
                running_cons += cons  # HERE
                if epoch >= WARMUP_EPOCHS:
                    loss = loss + 0.1 * cons
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} l1 {running_l1 / n:.4f}", flush=True)
        print(f"epoch {epoch}: l1 {running_l1 / n:.4f} cons {float(running_cons) / n:.5f}")


if __name__ == "__main__":
    main()
