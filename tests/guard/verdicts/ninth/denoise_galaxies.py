"""Trains a noise predictor on 64 px galaxy cutouts."""
import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, channels, emb):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(emb, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm(x))) + self.time(t)[:, :, None, None]
        return x + self.conv2(F.silu(h))


class SpatialAttention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, self.heads, c // self.heads, h * w).unbind(1)
        scores = torch.einsum("bhcn,bhcm->bhnm", q, k) / math.sqrt(c // self.heads)  # HERE
        mixed = torch.einsum("bhnm,bhcm->bhcn", scores.softmax(-1), v)
        return x + self.out(mixed.reshape(b, c, h, w))


class NoisePredictor(nn.Module):
    def __init__(self, width=64, emb=128):
        super().__init__()
        self.emb = emb
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.block1 = ResBlock(width, emb)
        self.attention = SpatialAttention(width)
        self.block2 = ResBlock(width, emb)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def time_embedding(self, t):
        freq = torch.exp(-math.log(10000) * torch.arange(self.emb // 2, device=t.device) / (self.emb // 2))
        angle = t[:, None].float() * freq
        return torch.cat([angle.sin(), angle.cos()], -1)

    def forward(self, x, t):
        t = self.time_embedding(t)
        h = self.block1(self.enter(x), t)
        h = self.block2(self.attention(h), t)
        return self.leave(h)


class Schedule:
    def __init__(self, steps, device):
        beta = torch.linspace(1e-4, 0.02, steps, device=device)
        self.kept = (1 - beta).cumprod(0)
        self.steps = steps

    def noise(self, x):
        t = torch.randint(self.steps, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        kept = self.kept[t][:, None, None, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise, noise, t


def galaxies(count, size, gen):
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    tilt = torch.rand(count, 1, 1, generator=gen) * math.pi
    ratio = 0.3 + 0.7 * torch.rand(count, 1, 1, generator=gen)
    u, v = x * tilt.cos() + y * tilt.sin(), (y * tilt.cos() - x * tilt.sin()) / ratio
    return (2 * torch.exp(-4 * (u ** 2 + v ** 2).sqrt()) - 1)[:, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = NoisePredictor().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    schedule = Schedule(1000, device)
    for step in range(args.steps):
        images = galaxies(args.batch, args.size, gen).to(device)
        noisy, noise, t = schedule.noise(images)
        loss = F.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} mse {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
