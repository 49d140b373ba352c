from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Config:
    dim: int = 192
    batch: int = 4096
    steps: int = 60
    buckets: dict = field(default_factory=lambda: {
        "hour": 24,
        "device": 5_000,
        "site": 100_000,
        "user": 10_000_000,  # HERE
        "ad": 200_000,
    })


class CTRModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tables = nn.ModuleDict()
        for name, rows in cfg.buckets.items():
            print(f"table {name}: {rows} x {cfg.dim}", flush=True)
            self.tables[name] = nn.Embedding(rows, cfg.dim, sparse=True, device="cuda")
        self.top = nn.Sequential(
            nn.Linear(cfg.dim * len(cfg.buckets), 512), nn.ReLU(), nn.Linear(512, 1)
        ).cuda()

    def forward(self, feats):
        parts = [self.tables[k](v) for k, v in feats.items()]
        return self.top(torch.cat(parts, dim=-1)).squeeze(-1)


def make_batch(cfg):
    feats = {k: torch.randint(0, rows, (cfg.batch,), device="cuda") for k, rows in cfg.buckets.items()}
    return feats, (torch.rand(cfg.batch, device="cuda") < 0.1).float()


def main():
    cfg = Config()
    model = CTRModel(cfg)
    sparse = torch.optim.SGD(model.tables.parameters(), lr=0.1)
    dense = torch.optim.Adam(model.top.parameters(), lr=1e-3)
    for step in range(cfg.steps):
        feats, clicks = make_batch(cfg)
        loss = nn.functional.binary_cross_entropy_with_logits(model(feats), clicks)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
