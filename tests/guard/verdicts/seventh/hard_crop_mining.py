#!/usr/bin/env python
"""Building footprint segmentation on aerial tiles with online hard crop mining."""
import argparse
import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
logger = logging.getLogger("footprints")


@dataclass
class HardCrop:
    score: float
    image: torch.Tensor
    mask: torch.Tensor


class HardCropPool:
    def __init__(self, capacity, crop):
        self.capacity = capacity
        self.crop = crop
        self.items = []

    @torch.no_grad()
    def update(self, images, masks, loss_map):
        c = self.crop
        heat = F.avg_pool2d(loss_map[:, None], c, stride=c)[:, 0]
        flat = heat.flatten(1)
        score, pos = flat.max(dim=1)
        b = int(score.argmax())
        row, col = divmod(int(pos[b]), heat.shape[-1])
        ys, xs = slice(row * c, row * c + c), slice(col * c, col * c + c)
        self.items.append(HardCrop(float(score[b]), images[b, :, ys, xs], masks[b, ys, xs]))  # HERE
        if len(self.items) > self.capacity:
            self.items.sort(key=lambda it: it.score, reverse=True)
            del self.items[self.capacity:]

    def sample(self, n, rng):
        idx = rng.choice(len(self.items), size=n, replace=len(self.items) < n)
        picked = [self.items[i] for i in idx]
        return torch.stack([p.image for p in picked]), torch.stack([p.mask for p in picked])


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False),
                         nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class TinyUNet(nn.Module):
    def __init__(self, ch=24, classes=2):
        super().__init__()
        self.stem = block(3, ch, 2)
        self.d1 = block(ch, ch * 2, 2)
        self.d2 = block(ch * 2, ch * 4, 2)
        self.mid = block(ch * 4, ch * 4)
        self.u2 = block(ch * 4 + ch * 2, ch * 2)
        self.u1 = block(ch * 2 + ch, ch)
        self.out = nn.Conv2d(ch, classes, 1)

    def forward(self, x):
        s = self.stem(x)
        a = self.d1(s)
        b = self.mid(self.d2(a))
        up = lambda t: F.interpolate(t, scale_factor=2, mode="nearest")
        h = self.u2(torch.cat([up(b), a], 1))
        h = self.u1(torch.cat([up(h), s], 1))
        return up(self.out(h))


class AerialTiles:
    """Synthetic stand-in for the 512px orthophoto tiles."""

    def __init__(self, size=512, seed=0):
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.canvas = self.rng.integers(0, 255, (3, 2048, 2048), dtype=np.uint8)
        blob = self.rng.random((64, 64)) > 0.6
        self.label = np.kron(blob, np.ones((32, 32))).astype(np.int64)

    def batch(self, n):
        xs, ys = [], []
        for _ in range(n):
            r, c = self.rng.integers(0, 2048 - self.size, 2)
            xs.append(self.canvas[:, r:r + self.size, c:c + self.size])
            ys.append(self.label[r:r + self.size, c:c + self.size])
        x = torch.from_numpy(np.stack(xs)).float().div_(255)
        return x, torch.from_numpy(np.stack(ys))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--iters", type=int, default=2000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--crop", type=int, default=64)
    p.add_argument("--pool", type=int, default=256)
    p.add_argument("--mine-after", type=int, default=16)
    cfg = p.parse_args()

    device = "cuda:0"
    rng = np.random.default_rng(1)
    tiles = AerialTiles()
    net = TinyUNet().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    pool = HardCropPool(cfg.pool, cfg.crop)

    for it in range(cfg.iters):
        images, masks = tiles.batch(cfg.batch_size)
        images, masks = images.to(device), masks.to(device)
        loss_map = F.cross_entropy(net(images), masks, reduction="none")
        loss = loss_map.mean()
        if it >= cfg.mine_after:
            hx, hy = pool.sample(cfg.batch_size, rng)
            loss = loss + 0.5 * F.cross_entropy(net(hx), hy)
        opt.zero_grad()
        loss.backward()
        opt.step()
        pool.update(images, masks, loss_map.detach())
        if it % 10 == 0:
            logger.info("iter %d loss %.4f pool %d hardest %.3f", it, loss.item(),
                        len(pool.items), max(i.score for i in pool.items))


if __name__ == "__main__":
    main()
