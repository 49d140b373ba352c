"""SimCLR on wearable-sensor windows with alignment/uniformity monitoring (Accelerate)."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


class SensorEncoder(nn.Module):
    def __init__(self, n_in=6 * 100, width=1024, out=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
        )
        self.proj = nn.Sequential(nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, out))

    def forward(self, x):
        return F.normalize(self.proj(self.net(x.flatten(1))), dim=-1)


def jitter_scale(x, sigma=0.08):
    scale = 1 + 0.2 * torch.randn(x.size(0), x.size(1), 1, device=x.device)
    return x * scale + sigma * torch.randn_like(x)


def info_nce(z1, z2, tau):
    logits = z1 @ z2.T / tau
    target = torch.arange(z1.size(0), device=z1.device)
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target))


def alignment(z1, z2):
    return (z1 - z2).pow(2).sum(-1).mean()


def uniformity(z, t=2.0):
    return torch.pdist(z).pow(2).mul(-t).exp().mean().log()


class SmoothedMetrics:
    """Bias-corrected exponential averages."""

    def __init__(self, momentum=0.98):
        self.m = momentum
        self.avg, self.n = {}, {}

    def update(self, **values):
        for k, v in values.items():
            self.n[k] = self.n.get(k, 0) + 1
            self.avg[k] = self.m * self.avg.get(k, 0.0) + (1 - self.m) * v  # HERE

    def report(self):
        return {k: float(a) / (1 - self.m ** self.n[k]) for k, a in self.avg.items()}


def windows(n):
    t = torch.arange(100) / 50.0
    f = torch.rand(n, 6, 1) * 4
    return torch.sin(2 * math.pi * f * t) + 0.1 * torch.randn(n, 6, 100)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--windows", type=int, default=65536)
    ap.add_argument("--batch-size", type=int, default=4096)
    ap.add_argument("--epochs", type=int, default=100)
    ap.add_argument("--tau", type=float, default=0.2)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()

    accelerator = Accelerator()
    set_seed(0)
    loader = DataLoader(TensorDataset(windows(args.windows)), args.batch_size, shuffle=True, drop_last=True)
    model = SensorEncoder()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader))
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)

    meters = SmoothedMetrics()
    step = 0
    for epoch in range(args.epochs):
        for (x,) in loader:
            z1, z2 = model(jitter_scale(x)), model(jitter_scale(x))
            loss = info_nce(z1, z2, args.tau)
            accelerator.backward(loss)
            opt.step()
            sched.step()
            opt.zero_grad()
            meters.update(loss=loss.item(), align=alignment(z1, z2), uniform=uniformity(z1))
            step += 1
            if step % 10 == 0:
                accelerator.print(f"epoch {epoch} step {step} " + " ".join(
                    f"{k} {v:.4f}" for k, v in meters.report().items()))
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
