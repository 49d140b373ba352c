"""Diabetic retinopathy grading. Heavy colour/geometric augmentation runs on the GPU."""
import argparse
import math
import time

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class FundusDataset(Dataset):
    def __init__(self, n, size, device="cuda", train=True):
        self.n, self.size = n, size
        self.device = device
        self.train = train

    def __len__(self):
        return self.n

    def _read(self, idx):
        g = torch.Generator().manual_seed(idx)
        img = torch.rand(3, self.size, self.size, generator=g)
        return img, idx % 5

    def _augment(self, img):
        ang = (torch.rand(()) * 2 - 1) * math.pi
        c, s = math.cos(ang), math.sin(ang)
        theta = torch.tensor([[c, -s, 0.0], [s, c, 0.0]], device=img.device)[None]
        grid = F.affine_grid(theta, (1, *img.shape), align_corners=False)
        img = F.grid_sample(img[None], grid, align_corners=False)[0]
        gain = 1 + 0.2 * torch.randn(3, 1, 1, device=img.device)
        return (img * gain).clamp(0, 1)

    def __getitem__(self, idx):
        img, grade = self._read(idx)
        img = img.to(self.device)  # HERE
        if self.train:
            img = self._augment(img)
        img = (img - 0.45) / 0.22
        return img.cpu(), grade


class Net(nn.Module):
    def __init__(self, w=32, n_grades=5):
        super().__init__()
        def cb(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
        self.f = nn.Sequential(cb(3, w), cb(w, 2 * w), cb(2 * w, 4 * w), cb(4 * w, 8 * w))
        self.head = nn.Linear(8 * w, n_grades)

    def forward(self, x):
        return self.head(self.f(x).mean((2, 3)))


def ordinal_loss(logits, grade):
    ce = F.cross_entropy(logits, grade)
    expect = (logits.softmax(1) * torch.arange(5, device=logits.device)).sum(1)
    return ce + 0.1 * F.smooth_l1_loss(expect, grade.float())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=6400)
    ap.add_argument("--size", type=int, default=256)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()

    device = torch.device("cuda")
    net = Net().to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    loader = DataLoader(FundusDataset(args.images, args.size), batch_size=args.batch_size,  # HERE
                        shuffle=True, num_workers=args.workers, drop_last=True,
                        multiprocessing_context=mp.get_context("spawn"),
                        persistent_workers=True)
    for epoch in range(args.epochs):
        net.train()
        t0 = time.time()
        for it, (img, grade) in enumerate(loader):
            img, grade = img.to(device), grade.to(device)
            loss = ordinal_loss(net(img), grade)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if it % 10 == 0:
                print(f"epoch {epoch} it {it}/{len(loader)} loss {loss.item():.3f} "
                      f"{(it + 1) * args.batch_size / (time.time() - t0):.0f} img/s", flush=True)


if __name__ == "__main__":
    main()
