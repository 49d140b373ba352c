"""Uniform soup: average the last checkpoints of a run and evaluate the average."""
import os
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N_CHECKPOINTS = 12
WIDTH = 2048
DEPTH = 20
CLASSES = 100


class ResMLP(nn.Module):
    def __init__(self, width=WIDTH, depth=DEPTH, classes=CLASSES):
        super().__init__()
        self.stem = nn.Linear(256, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(x)


def fake_run(folder):
    """Writes the checkpoints that the training job would have left."""
    model = ResMLP()
    paths = []
    for step in range(N_CHECKPOINTS):
        with torch.no_grad():
            model.head.weight.add_(0.01 * torch.randn_like(model.head.weight))
        path = os.path.join(folder, f"step_{(step + 1) * 1000:06d}.pt")
        torch.save(model.state_dict(), path)
        paths.append(path)
    return paths


def average(states):
    soup = {}
    for key in states[0]:
        acc = torch.zeros_like(states[0][key])
        for s in states:
            acc += s[key]
        soup[key] = acc / len(states)
    return soup


def evaluate(model, loader, accelerator):
    hits = total = 0
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            pred = model(x).argmax(-1)
            pred, y = accelerator.gather_for_metrics((pred, y))
            hits += (pred == y).sum().item()
            total += y.numel()
    return hits / total


def main():
    set_seed(11)
    accelerator = Accelerator()
    x, y = torch.randn(4096, 256), torch.randint(0, CLASSES, (4096,))
    loader = DataLoader(TensorDataset(x, y), batch_size=256)
    model, loader = accelerator.prepare(ResMLP(), loader)

    with tempfile.TemporaryDirectory(prefix="soup_") as folder:
        paths = fake_run(folder)
        accelerator.print(f"found {len(paths)} checkpoints in {folder}")
        states = [torch.load(p, map_location=accelerator.device) for p in paths]  # HERE
    accelerator.print("averaging")
    accelerator.unwrap_model(model).load_state_dict(average(states))
    acc = evaluate(model, loader, accelerator)
    accelerator.print(f"soup accuracy {acc:.4f}")


if __name__ == "__main__":
    main()
