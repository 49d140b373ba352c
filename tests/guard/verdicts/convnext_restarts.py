"""ConvNeXt with warm restarts: each cycle starts with a fresh AdamW and a cosine schedule."""
import argparse

import torch
from torch import nn
from torchvision.models import convnext_base, convnext_tiny

MODELS = {"base": convnext_base, "tiny": convnext_tiny}


class Spots:
    """Images with a bright spot whose quadrant is the class."""

    def __init__(self, size, seed=4):
        self.size, self.gen = size, torch.Generator().manual_seed(seed)

    def batch(self, count):
        images = torch.rand(count, 3, self.size, self.size, generator=self.gen)
        labels = torch.randint(0, 4, (count,), generator=self.gen)
        half = self.size // 2
        for image, label in zip(images, labels.tolist()):
            top, left = (label // 2) * half, (label % 2) * half
            image[:, top : top + half, left : left + half] += 0.5
        return images, labels


class Restarts:
    """Owns the optimizer; remembers the schedules, for the learning-rate plot at the end."""

    def __init__(self, model, peak, steps_per_cycle):
        self.model, self.peak, self.length = model, peak, steps_per_cycle
        self.optimizer = None
        self.schedules = []
        self.curve = []

    def begin_cycle(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.peak, weight_decay=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=self.length)
        self.schedules.append(schedule)  # HERE
        self.peak *= 0.9

    def step(self):
        self.optimizer.step()
        self.curve.append(self.schedules[-1].get_last_lr()[0])
        self.schedules[-1].step()
        self.optimizer.zero_grad()

    def plot(self):
        for number, schedule in enumerate(self.schedules):
            print(f"cycle {number}: from {schedule.base_lrs[0]:.2e} to {schedule.get_last_lr()[0]:.2e}")


def train_cycle(model, data, restarts, args, device):
    model.train()
    restarts.begin_cycle()
    total = 0.0
    for _ in range(args.steps):
        images, labels = data.batch(args.batch)
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        restarts.step()
        total += loss.item()
    return total / args.steps


@torch.no_grad()
def accuracy(model, data, args, device):
    model.eval()
    images, labels = data.batch(args.batch)
    return (model(images.to(device)).argmax(1).cpu() == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="base")
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = MODELS[args.model](num_classes=4).to(device)
    data = Spots(args.size)
    restarts = Restarts(model, 1e-4, args.steps)
    for cycle in range(args.cycles):
        loss = train_cycle(model, data, restarts, args, device)
        print(f"cycle {cycle} loss {loss:.4f} accuracy {accuracy(model, data, args, device):.2f}", flush=True)
    restarts.plot()


if __name__ == "__main__":
    main()
