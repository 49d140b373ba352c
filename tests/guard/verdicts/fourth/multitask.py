"""Shared trunk, one head per task, tasks visited round robin."""
import torch
from torch import nn
import torch.nn.functional as F

TASKS = ["ctr", "cvr", "like", "share", "dwell", "skip", "follow", "hide", "report", "save"]


class SharedTrunk(nn.Module):
    def __init__(self, width=5000, depth=4):
        super().__init__()
        self.net = nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(width, width), nn.SiLU())])

    def forward(self, x):
        return self.net(x)


class MultiTask:
    def __init__(self, device):
        self.device = device
        self.trunk = SharedTrunk().to(device)
        self.heads = nn.ModuleDict({t: nn.Linear(5000, 1) for t in TASKS}).to(device)
        self.optims = {}
        for t in TASKS:
            params = list(self.trunk.parameters()) + list(self.heads[t].parameters())
            self.optims[t] = torch.optim.Adam(params, lr=1e-4)  # HERE

    def step(self, task, x, y):
        logit = self.heads[task](self.trunk(x)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logit, y)
        self.optims[task].zero_grad()
        loss.backward()
        self.optims[task].step()
        return loss.item()


def main():
    mt = MultiTask("cuda")
    for it in range(100):
        for t in TASKS:
            x = torch.randn(128, 5000, device="cuda")
            y = (x[:, 0] > 0).float()
            print(f"{it} {t}: {mt.step(t, x, y):.4f}", flush=True)


main()
