"""FixMatch-like semi-supervised training on microscopy crops: a small labelled stream is repeated
alongside a long unlabelled stream."""
import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


def augment(x, strong=False):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    if strong:
        x = x + 0.15 * torch.randn_like(x)
        h = x.shape[-1] // 4
        i, j = torch.randint(0, 3 * h, (2,)).tolist()
        x[..., i:i + h, j:j + h] = 0.5
    return x


class CropStream:
    """Decodes crops from tiny thumbnails; stands in for the zarr reader."""

    def __init__(self, n, batch, size, device, labelled):
        self.n, self.batch, self.size, self.device, self.labelled = n, batch, size, device, labelled
        self.thumbs = torch.rand(256, 3, 16, 16)

    def __len__(self):
        return self.n // self.batch

    def __iter__(self):
        for _ in range(len(self)):
            idx = torch.randint(0, 256, (self.batch,))
            small = self.thumbs[idx].to(self.device, non_blocking=True)
            x = F.interpolate(small, size=(self.size, self.size), mode="bilinear", align_corners=False)
            y = (small.mean(dim=(1, 2, 3)) * 80).long().remainder(8)
            yield (x, y) if self.labelled else x


class CellNet(nn.Module):
    def __init__(self, classes=8, w=24):
        super().__init__()
        layers, cin = [], 3
        for i, cout in enumerate([w, 2 * w, 4 * w, 4 * w]):
            layers += [nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(True)]
            cin = cout
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=3000)
    ap.add_argument("--labelled", type=int, default=4000)
    ap.add_argument("--unlabelled", type=int, default=200000)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--mu", type=int, default=2)
    ap.add_argument("--size", type=int, default=224)
    ap.add_argument("--tau", type=float, default=0.8)
    args = ap.parse_args()
    device = torch.device("cuda")

    labelled = CropStream(args.labelled, args.batch, args.size, device, True)
    unlabelled = CropStream(args.unlabelled, args.batch * args.mu, args.size, device, False)
    model = CellNet().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.iters)

    lab_iter = itertools.cycle(labelled)  # HERE
    unl_iter = itertools.cycle(unlabelled)  # HERE
    used = 0.0
    for it in range(args.iters):
        x, y = next(lab_iter)
        u = next(unl_iter)
        with torch.no_grad():
            conf, pseudo = model(augment(u)).softmax(1).max(1)
        keep = (conf > args.tau).float()
        loss_x = F.cross_entropy(model(augment(x)), y)
        loss_u = (F.cross_entropy(model(augment(u, strong=True)), pseudo, reduction="none") * keep).mean()
        loss = loss_x + loss_u
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        used += keep.mean().item()
        if it % 20 == 0:
            print(f"{it:5d} sup {loss_x.item():.3f} unsup {loss_u.item():.3f} used {used / (it + 1):.2f}")


if __name__ == "__main__":
    main()
