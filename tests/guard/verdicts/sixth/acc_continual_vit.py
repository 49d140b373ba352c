"""Continual learning with path-integral importances (after Zenke et al. 2017)."""
import argparse
import logging

import timm
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
logger = logging.getLogger(__name__)


class PathImportance:
    """Length of the path each weight has travelled during the current task."""

    def __init__(self, model, damping=1e-3):
        self.damping = damping
        self.prev = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.path = {n: torch.zeros_like(p) for n, p in model.named_parameters()}

    def update(self, model):
        for name, p in model.named_parameters():
            step = p - self.prev[name]
            self.path[name] = self.path[name] + step.pow(2)  # HERE
            self.prev[name] = p.detach().clone()

    def omega(self):
        return {n: v / (v.max() + self.damping) for n, v in self.path.items()}


def task_loader(task, n, size, batch):
    g = torch.Generator().manual_seed(task)
    x = torch.randn(n, 3, size, size, generator=g)
    y = torch.randint(0, 10, (n,), generator=g) + 10 * task
    return DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True)


def train_task(accelerator, model, optimizer, loader, importance, task, epochs):
    model.train()
    seen = 0
    for epoch in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            importance.update(accelerator.unwrap_model(model))
            seen += 1
            if seen % 10 == 0:
                logger.info("task %d step %d loss %.4f", task, seen, loss.item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tasks", type=int, default=5)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-4)
    args = ap.parse_args()

    accelerator = Accelerator()
    model = timm.create_model("vit_small_patch16_224", pretrained=False,
                              num_classes=10 * args.tasks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    model, optimizer = accelerator.prepare(model, optimizer)
    omegas = []
    for task in range(args.tasks):
        loader = accelerator.prepare(task_loader(task, 480, 224, args.batch))
        importance = PathImportance(accelerator.unwrap_model(model))
        train_task(accelerator, model, optimizer, loader, importance, task, args.epochs)
        omegas.append({n: w.cpu() for n, w in importance.omega().items()})


if __name__ == "__main__":
    main()
