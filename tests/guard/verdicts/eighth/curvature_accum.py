#!/usr/bin/env python
"""Hutchinson-preconditioned SGD (AdaHessian flavour) for satellite tile classification,
with gradient accumulation to reach a large effective batch."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    lr: float = 0.05
    hess_momentum: float = 0.95
    accum: int = 64
    micro_batch: int = 16
    updates: int = 20
    width: int = 32
    image: int = 64


def block(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1),
        nn.GroupNorm(8, cout),
        nn.GELU(),
    )


class TileNet(nn.Module):
    def __init__(self, width, classes=10, bands=12):
        super().__init__()
        self.net = nn.Sequential(
            block(bands, width), block(width, width),
            block(width, 2 * width, 2), block(2 * width, 2 * width),
            block(2 * width, 4 * width, 2), block(4 * width, 4 * width),
        )
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.fc(self.net(x).mean(dim=(2, 3)))


class HutchinsonSGD:
    def __init__(self, params, lr, beta):
        self.params = [p for p in params if p.requires_grad]
        self.lr, self.beta = lr, beta
        self.diag = [torch.ones_like(p) for p in self.params]

    def estimate(self):
        grads = [p.grad for p in self.params]
        vs = [torch.randint_like(p, 0, 2) * 2 - 1 for p in self.params]
        hvs = torch.autograd.grad(grads, self.params, grad_outputs=vs)
        for d, v, hv in zip(self.diag, vs, hvs):
            d.mul_(self.beta).add_((v * hv).abs(), alpha=1 - self.beta)

    @torch.no_grad()
    def step(self):
        for p, d in zip(self.params, self.diag):
            p.add_(p.grad / (d.sqrt() + 1e-3), alpha=-self.lr)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def get_batch(cfg, device):
    y = torch.randint(0, 10, (cfg.micro_batch,), device=device)
    x = torch.randn(cfg.micro_batch, 12, cfg.image, cfg.image, device=device)
    return x + 0.1 * y.view(-1, 1, 1, 1), y


def train(cfg):
    device = "cuda"
    torch.manual_seed(0)
    model = TileNet(cfg.width).to(device)
    opt = HutchinsonSGD(model.parameters(), cfg.lr, cfg.hess_momentum)

    for update in range(cfg.updates):
        opt.zero_grad()
        running = 0.0
        for _ in range(cfg.accum):
            x, y = get_batch(cfg, device)
            loss = F.cross_entropy(model(x), y) / cfg.accum
            loss.backward(create_graph=True)  # HERE
            running += loss.item()
        opt.estimate()
        opt.step()
        print(f"update {update:3d}  loss {running:.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--accum", type=int, default=64)
    ap.add_argument("--micro-batch", type=int, default=16)
    ap.add_argument("--updates", type=int, default=20)
    a = ap.parse_args()
    train(Config(accum=a.accum, micro_batch=a.micro_batch, updates=a.updates))
