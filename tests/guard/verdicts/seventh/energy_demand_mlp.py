# Hourly building energy demand from weather + calendar features (tabular MLP).
import argparse
import json
import math

import numpy as np
import torch
from torch import nn


def synth_table(n, n_feat, rng):
    x = rng.normal(size=(n, n_feat)).astype(np.float32)
    w = rng.normal(size=(n_feat,)).astype(np.float32) / math.sqrt(n_feat)
    load = np.sin(x @ w) + 0.4 * np.maximum(x[:, 0] - 0.5, 0) ** 2
    load += 0.05 * rng.normal(size=n)
    return x, load.astype(np.float32)


class Standardizer:
    def fit(self, x):
        self.mu, self.sd = x.mean(0), x.std(0) + 1e-6
        return self

    def __call__(self, x):
        return (x - self.mu) / self.sd


class DemandNet(nn.Module):
    def __init__(self, n_feat, width, depth, p_drop):
        super().__init__()
        dims = [n_feat] + [width] * depth
        blocks = []
        for a, b in zip(dims[:-1], dims[1:]):
            blocks += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.SiLU(), nn.Dropout(p_drop)]
        self.trunk = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.trunk(x))


def huber(pred, target, delta=1.0):
    err = pred - target
    small = err.abs().clamp(max=delta)
    return (0.5 * small ** 2 + delta * (err.abs() - small)).mean()


def scores(pred, target):
    err = pred - target  # HERE
    ss_res = err.pow(2).mean()
    ss_tot = target.var(unbiased=False)
    return {"rmse": ss_res.sqrt().item(),
            "mae": err.abs().mean().item(),
            "r2": (1 - ss_res / ss_tot).item()}


@torch.no_grad()
def predict(model, x, device, chunk):
    model.eval()
    return torch.cat([model(x[i:i + chunk].to(device)) for i in range(0, len(x), chunk)])


def train_epoch(model, opt, x, y, device, bs):
    model.train()
    perm = torch.randperm(len(x))
    running = 0.0
    for i in range(0, len(x) - bs + 1, bs):
        j = perm[i:i + bs]
        xb, yb = x[j].to(device), y[j].to(device)
        loss = huber(model(xb).squeeze(-1), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
    return running / (len(x) // bs)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--rows", type=int, default=240_000)
    ap.add_argument("--valid-frac", type=float, default=0.2)
    ap.add_argument("--features", type=int, default=48)
    ap.add_argument("--width", type=int, default=512)
    ap.add_argument("--depth", type=int, default=4)
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--bs", type=int, default=1024)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    x, y = synth_table(args.rows, args.features, rng)
    cut = int(args.rows * (1 - args.valid_frac))
    scale = Standardizer().fit(x[:cut])
    x = torch.from_numpy(scale(x).astype(np.float32))
    y = torch.from_numpy(y)
    xtr, ytr, xva, yva = x[:cut], y[:cut], x[cut:], y[cut:]

    device = torch.device("cuda")
    model = DemandNet(args.features, args.width, args.depth, args.dropout).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=args.lr * 3, total_steps=args.epochs)
    best = float("inf")
    for epoch in range(args.epochs):
        tr = train_epoch(model, opt, xtr, ytr, device, args.bs)
        sched.step()
        m = scores(predict(model, xva, device, chunk=8192), yva.to(device))
        m.update(epoch=epoch, train=round(tr, 5))
        print(json.dumps(m))
        best = min(best, m["rmse"])
    print("best rmse", best)


if __name__ == "__main__":
    main()
