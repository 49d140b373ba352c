"""Monocular depth: trains a little, then scores the validation rooms with Accelerate."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

try:
    from accelerate import Accelerator
except ImportError:
    class Accelerator:
        def __init__(self):
            self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

        def prepare(self, *things):
            return tuple(t.to(self.device) if isinstance(t, nn.Module) else t for t in things)

        def backward(self, loss):
            loss.backward()

        def gather_for_metrics(self, value):
            return value

        def print(self, *words):
            print(*words, flush=True)


class Rooms(Dataset):
    def __init__(self, count, height, width, seed):
        self.count, self.size, self.seed = count, (height, width), seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.seed * 100_003 + i)
        coarse = torch.rand(1, 4, 8, 10, generator=gen)
        full = F.interpolate(coarse, self.size, mode="bilinear")[0]
        return full[:3], 0.5 + 9.5 * full[3:]


class DepthNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, width, 5, 4, 2), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU())
        self.out = nn.Conv2d(3 * width, 1, 3, 1, 1)

    def forward(self, image):
        a = self.down1(image)
        b = self.mid(self.down2(a))
        b = F.interpolate(b, a.shape[-2:])
        depth = F.softplus(self.out(torch.cat([a, b], 1)))
        return F.interpolate(depth, image.shape[-2:], mode="bilinear")


def train(accelerator, model, loader, optimizer, steps):
    model.train()
    for step, (image, depth) in enumerate(loader):
        if step == steps:
            break
        loss = (model(image.to(accelerator.device)) - depth.to(accelerator.device)).abs().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.print(f"after {steps} steps: l1 {loss.item():.3f}")


@torch.no_grad()
def validate(accelerator, model, loader):
    model.eval()
    predicted, measured = [], []
    for image, depth in loader:
        output = model(image.to(accelerator.device))
        output, depth = accelerator.gather_for_metrics((output, depth.to(accelerator.device)))
        predicted.append(output)  # HERE
        measured.append(depth)  # HERE
    predicted, measured = torch.cat(predicted), torch.cat(measured)
    ratio = torch.maximum(predicted / measured, measured / predicted)
    return {"abs_rel": ((predicted - measured).abs() / measured).mean().item(),
            "delta1": (ratio < 1.25).float().mean().item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--validation", type=int, default=3200)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator()
    model = DepthNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    training = DataLoader(Rooms(1000, args.height, args.width, 1), batch_size=args.batch)
    validation = DataLoader(Rooms(args.validation, args.height, args.width, 2), batch_size=args.batch)
    model, optimizer, training, validation = accelerator.prepare(model, optimizer, training, validation)
    train(accelerator, model, training, optimizer, args.steps)
    accelerator.print(validate(accelerator, model, validation))


if __name__ == "__main__":
    main()
