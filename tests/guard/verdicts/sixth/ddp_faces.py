"""Face attribute classifier, DDP. Images are 64x64 so everything lives in memory."""
import argparse
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_images(n, size=64):
    rng = np.random.default_rng(42)
    pixels = rng.integers(0, 256, (n, 3, size, size), dtype=np.uint8)
    attrs = rng.integers(0, 2, (n, 40)).astype(np.float32)
    return torch.from_numpy(pixels), torch.from_numpy(attrs)


def resident_dataset(n, device):
    """No PCIe traffic during the epoch: 3x faster than the worker version."""
    pixels, attrs = read_images(n)
    images = pixels.to(device).float().div_(255)  # HERE
    return TensorDataset(images, attrs.to(device))


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, c = [], 3
        for k in range(4):
            o = width * 2 ** k
            layers += [nn.Conv2d(c, o, 3, stride=2, padding=1), nn.BatchNorm2d(o), nn.ReLU()]
            c = o
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(c, 40)

    def forward(self, x):
        return self.head(self.features(x))


def run_epoch(model, loader, opt, epoch, rank):
    loss_fn = nn.BCEWithLogitsLoss()
    start = time.time()
    for i, (x, y) in enumerate(loader):
        loss = loss_fn(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if rank == 0 and i % 50 == 0:
            print(f"epoch {epoch} it {i} loss {loss.item():.4f} {time.time() - start:.1f}s",
                  flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=40960)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.manual_seed(rank)

    data = resident_dataset(args.images, device)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    model = DDP(Net().to(device))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        run_epoch(model, loader, opt, epoch, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
