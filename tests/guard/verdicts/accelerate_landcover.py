"""Land-cover segmentation with Accelerate; class-wise IoU over the whole validation set."""
import argparse

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 8


class Tiles(Dataset):
    def __init__(self, count, size, seed):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.seed * 100_003 + i)
        coarse = torch.randint(0, CLASSES, (8, 8), generator=gen)
        labels = coarse.repeat_interleave(self.size // 8, 0).repeat_interleave(self.size // 8, 1)
        image = torch.rand(3, self.size, self.size, generator=gen)
        image[0] += labels / CLASSES
        return image, labels


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class SmallFCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 32, 4, stride=4), block(32, 64), nn.MaxPool2d(2), block(64, 128))
        self.head = nn.Conv2d(128, CLASSES, 1)

    def forward(self, x):
        return F.interpolate(self.head(self.down(x)), size=x.shape[-2:], mode="bilinear")


def iou(predicted, truth):
    scores = []
    for c in range(CLASSES):
        p, t = predicted == c, truth == c
        scores.append(((p & t).sum() / (p | t).sum().clamp(min=1)).item())
    return scores


class Evaluator:
    def __init__(self, accelerator, loader):
        self.accelerator, self.loader = accelerator, loader

    @torch.no_grad()
    def __call__(self, model):
        model.eval()
        predicted = torch.empty(0, dtype=torch.long, device=self.accelerator.device)
        truth = torch.empty_like(predicted)
        for number, (images, labels) in enumerate(self.loader):
            classes = model(images).argmax(dim=1)
            classes, labels = self.accelerator.gather_for_metrics((classes, labels))
            predicted = torch.cat([predicted, classes.flatten()])  # HERE
            truth = torch.cat([truth, labels.flatten()])  # HERE
            if number % 5 == 0:
                self.accelerator.print(f"  evaluated {number + 1}/{len(self.loader)} batches", flush=True)
        return iou(predicted, truth)


def train(accelerator, model, loader, optimizer):
    model.train()
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.print(f"train loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-tiles", type=int, default=128)
    parser.add_argument("--val-tiles", type=int, default=3200)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    set_seed(6)
    accelerator = Accelerator()
    model = SmallFCN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_loader = DataLoader(Tiles(args.train_tiles, args.size, 1), batch_size=args.batch, shuffle=True)
    val_loader = DataLoader(Tiles(args.val_tiles, args.size, 2), batch_size=args.batch)
    model, optimizer, train_loader, val_loader = accelerator.prepare(model, optimizer, train_loader, val_loader)
    evaluate = Evaluator(accelerator, val_loader)
    for epoch in range(3):
        train(accelerator, model, train_loader, optimizer)
        accelerator.print(f"epoch {epoch} IoU {[round(v, 3) for v in evaluate(model)]}", flush=True)


if __name__ == "__main__":
    main()
