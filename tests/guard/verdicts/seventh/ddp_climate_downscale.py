"""Statistical downscaling of daily climate fields, DDP.

    torchrun --nproc-per-node 2 ddp_climate_downscale.py --years 18
"""
import argparse
import logging
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("downscale")


def read_year(year, n_vars, grid):
    """Daily fields of one year (the real reader opens the netCDF archive)."""
    rng = np.random.default_rng(year)
    base = rng.standard_normal((n_vars, *grid)).astype(np.float32)
    season = np.cos(np.arange(365) * 2 * np.pi / 365).astype(np.float32)
    return base[None] * (1 + 0.3 * season[:, None, None, None])


class DailyFields(Dataset):
    def __init__(self, years, n_vars, grid, device):
        self.fields = []
        for year in years:
            arr = torch.from_numpy(read_year(year, n_vars, grid))
            arr = (arr - arr.mean((0, 2, 3), keepdim=True)) / arr.std((0, 2, 3), keepdim=True)
            self.fields.append(arr.to(device))  # HERE
            log.info("loaded %d: %s", year, tuple(arr.shape))
        self.days = 365

    def __len__(self):
        return len(self.fields) * self.days

    def __getitem__(self, i):
        hi = self.fields[i // self.days][i % self.days]
        lo = F.avg_pool2d(hi[None], 4)[0]
        return lo, hi


class Downscaler(nn.Module):
    def __init__(self, n_vars, width=48):
        super().__init__()
        self.inp = nn.Conv2d(n_vars, width, 3, padding=1)
        self.body = nn.Sequential(*[nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.SiLU())
                                    for _ in range(4)])
        self.up = nn.Sequential(nn.Conv2d(width, n_vars * 16, 3, padding=1), nn.PixelShuffle(4))

    def forward(self, lo):
        h = self.inp(lo)
        return self.up(h + self.body(h)) + F.interpolate(lo, scale_factor=4, mode="bilinear",
                                                         align_corners=False)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--first-year", type=int, default=1990)
    ap.add_argument("--years", type=int, default=18)
    ap.add_argument("--n-vars", type=int, default=6)
    ap.add_argument("--grid", type=int, nargs=2, default=(128, 256))
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-4)
    args = ap.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING,
                        format="%(asctime)s %(message)s")
    local = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)

    years = range(args.first_year, args.first_year + args.years)
    data = DailyFields(years, args.n_vars, tuple(args.grid), device)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    net = DistributedDataParallel(Downscaler(args.n_vars).to(device), device_ids=[local])
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        t0 = time.time()
        for it, (lo, hi) in enumerate(loader):
            loss = F.l1_loss(net(lo), hi)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if it % 20 == 0:
                log.info("epoch %d it %d loss %.4f (%.1fs)", epoch, it, loss.item(), time.time() - t0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
