"""Occupancy prediction from LiDAR sweeps with a dense voxel encoder."""
import argparse
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class Sweep(NamedTuple):
    points: torch.Tensor      # (N, 3) metres, ego frame
    intensity: torch.Tensor   # (N,)


class SweepReader:
    """Replays a drive: ground plane, walls and clutter around the car, with multipath returns now and then."""

    def __init__(self, n_sweeps, n_points, device, seed=5):
        self.n, self.n_points, self.device = n_sweeps, n_points, device
        self.gen = torch.Generator(device=device).manual_seed(seed)

    def _rand(self, *shape):
        return torch.rand(*shape, device=self.device, generator=self.gen)

    def __getitem__(self, i):
        r = 20.0 * self._rand(self.n_points).sqrt()
        theta = 6.2832 * self._rand(self.n_points)
        z = -1.8 + 3.6 * self._rand(self.n_points).pow(4)
        pts = torch.stack([r * theta.cos(), r * theta.sin(), z], dim=1)
        if i % 400 == 399:
            pts[0] = torch.tensor([1850.0, 2.0, 0.4], device=self.device)
        return Sweep(pts, self._rand(self.n_points))

    def __len__(self):
        return self.n


class Voxelizer:
    def __init__(self, voxel_size):
        self.size = torch.tensor(voxel_size)

    def __call__(self, sweep):
        pts = sweep.points
        size = self.size.to(pts.device)
        low = pts.min(dim=0).values
        idx = ((pts - low) / size).long()
        nx, ny, nz = (idx.max(dim=0).values + 1).tolist()
        grid = torch.zeros(3, nx * ny * nz, device=pts.device)  # HERE
        flat = (idx[:, 0] * ny + idx[:, 1]) * nz + idx[:, 2]
        ones = torch.ones_like(sweep.intensity)
        grid[0].index_add_(0, flat, ones)
        grid[1].index_add_(0, flat, sweep.intensity)
        grid[2].index_add_(0, flat, pts[:, 2])
        grid[1:] /= grid[:1].clamp_min(1.0)
        grid[0].log1p_()
        return grid.view(1, 3, nx, ny, nz)


class OccupancyNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv3d(3, width, 3, stride=2, padding=1), nn.ReLU(inplace=True),
            nn.Conv3d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(inplace=True),
            nn.Conv3d(2 * width, 2 * width, 3, padding=1), nn.ReLU(inplace=True),
        )
        self.head = nn.Conv3d(2 * width, 1, 1)

    def forward(self, grid):
        return self.head(self.down(grid))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--sweeps", type=int, default=4000)
    ap.add_argument("--points", type=int, default=60000)
    ap.add_argument("--voxel", type=float, nargs=3, default=[0.1, 0.1, 0.1])
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    device = "cuda"

    reader = SweepReader(args.sweeps, args.points, device)
    voxelize = Voxelizer(args.voxel)
    net = OccupancyNet().to(device)
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    avg = 0.0
    for i in range(len(reader)):
        grid = voxelize(reader[i])
        keep = (torch.rand_like(grid[:, :1]) < 0.7).float()
        logits = net(grid * keep)
        target = F.adaptive_max_pool3d((grid[:, :1] > 0).float(), logits.shape[2:])
        loss = F.binary_cross_entropy_with_logits(logits, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        avg = 0.95 * avg + 0.05 * loss.item()
        if (i + 1) % 50 == 0:
            print(f"sweep {i + 1}: grid {tuple(grid.shape[2:])} bce {avg:.4f}", flush=True)


if __name__ == "__main__":
    main()
