# 10-fold cross validation of the churn model
from __future__ import annotations

import dataclasses
import sys

import numpy as np
import torch
import torch.nn as nn

FOLDS = 10
DEVICE = torch.device("cuda")


@dataclasses.dataclass
class FoldResult:
    fold: int
    auc: float
    model: nn.Module
    optimizer: torch.optim.Optimizer


def make_table(rows=20000, cols=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, cols)).astype(np.float32)
    w = rng.normal(size=cols) / np.sqrt(cols)
    y = (x @ w + 0.5 * rng.normal(size=rows) > 0).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


def make_model(cols):
    return nn.Sequential(
        nn.Linear(cols, 4096), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(0.3),
        nn.Linear(4096, 4096), nn.ReLU(),
        nn.Linear(4096, 1)).to(DEVICE)


def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    pos = label > 0.5
    n1, n0 = pos.sum().item(), (~pos).sum().item()
    return (rank[pos].sum().item() - n1 * (n1 - 1) / 2) / (n1 * n0)


def fit(x, y, steps=60, batch=512):
    model = make_model(x.shape[1])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-2)
    loss_fn = nn.BCEWithLogitsLoss()
    for step in range(steps):
        pick = torch.randint(0, len(x), (batch,))
        xb, yb = x[pick].to(DEVICE), y[pick].to(DEVICE)
        opt.zero_grad()
        loss = loss_fn(model(xb).squeeze(1), yb)
        loss.backward()
        opt.step()
    return model.eval(), opt


@torch.no_grad()
def predict(model, x):
    return torch.cat([model(b.to(DEVICE)).squeeze(1).cpu() for b in x.split(2048)])


def main() -> int:
    torch.manual_seed(0)
    x, y = make_table()
    assignment = torch.randperm(len(x)) % FOLDS
    results: list[FoldResult] = []
    for fold in range(FOLDS):
        held = assignment == fold
        model, opt = fit(x[~held], y[~held])
        score = auc(predict(model, x[held]), y[held])
        results.append(FoldResult(fold, score, model, opt))  # HERE
        print(f"fold {fold}: AUC {score:.4f}", flush=True)
    best = max(results, key=lambda r: r.auc)
    print(f"mean AUC {np.mean([r.auc for r in results]):.4f}, best fold {best.fold}")
    torch.save(best.model.state_dict(), "/tmp/churn_best.pt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
