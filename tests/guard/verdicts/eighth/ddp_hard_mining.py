"""Weld-defect classifier with online hard-example replay, two data-parallel ranks."""
import argparse
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def conv_bn(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class DefectNet(nn.Module):
    def __init__(self, classes=4, w=16):
        super().__init__()
        self.features = nn.Sequential(conv_bn(3, w, 2), conv_bn(w, 2 * w, 2), conv_bn(2 * w, 4 * w, 2),
                                      conv_bn(4 * w, 4 * w, 1))
        self.cls = nn.Linear(4 * w, classes)

    def forward(self, x):
        return self.cls(self.features(x).mean((2, 3)))


class HardExampleBuffer:
    def __init__(self, image_size, device):
        self.images = torch.empty(0, 3, image_size, image_size, device=device)
        self.labels = torch.empty(0, dtype=torch.long, device=device)

    def __len__(self):
        return len(self.labels)

    def push(self, images, labels, losses, quantile):
        hard = losses >= torch.quantile(losses, quantile)
        self.images = torch.cat([self.images, images[hard]])  # HERE
        self.labels = torch.cat([self.labels, labels[hard]])

    def draw(self, n):
        idx = torch.randint(0, len(self), (n,), device=self.labels.device)
        return self.images[idx], self.labels[idx]


class WeldLine:
    """Camera simulator: seam with porosity, cracks or undercut."""

    def __init__(self, batch, size, device, seed):
        self.batch, self.size, self.device = batch, size, device
        self.gen = torch.Generator(device=device).manual_seed(seed)

    def next(self):
        y = torch.randint(0, 4, (self.batch,), device=self.device, generator=self.gen)
        x = torch.rand(self.batch, 3, self.size, self.size, device=self.device, generator=self.gen)
        mid = self.size // 2
        x[:, :, mid - 8: mid + 8] += 0.2 * y.view(-1, 1, 1, 1)
        return x, y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--replay", type=int, default=16)
    ap.add_argument("--quantile", type=float, default=0.6)
    ap.add_argument("--size", type=int, default=224)
    args = ap.parse_args()
    dist.init_process_group(backend="gloo")
    rank = dist.get_rank()
    device = torch.device(f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}")
    torch.cuda.set_device(device)
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format=f"[rank {rank}] %(message)s")

    torch.manual_seed(100)
    model = DistributedDataParallel(DefectNet().to(device), device_ids=[device.index])
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    line = WeldLine(args.batch_size, args.size, device, seed=rank)
    buffer = HardExampleBuffer(args.size, device)

    for step in range(args.steps):
        x, y = line.next()
        n_new = len(y)
        batch_x, batch_y = x, y
        if len(buffer):
            rx, ry = buffer.draw(args.replay)
            batch_x, batch_y = torch.cat([x, rx]), torch.cat([y, ry])
        losses = F.cross_entropy(model(batch_x), batch_y, reduction="none")
        opt.zero_grad(set_to_none=True)
        losses.mean().backward()
        opt.step()
        buffer.push(x, y, losses.detach()[:n_new], args.quantile)
        if step % 20 == 0:
            logging.info("step %d loss %.4f hard examples %d", step, losses.mean().item(), len(buffer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
