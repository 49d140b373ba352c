"""Autoregressive weather emulator on a 128x256 lat-lon grid."""
import argparse
import logging
import logging.handlers
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F


def setup_logging(run_dir):
    """Console at INFO; the full debug trail is written out only when something goes wrong."""
    log = logging.getLogger("nowcast")
    log.setLevel(logging.DEBUG)
    console = logging.StreamHandler()
    console.setLevel(logging.INFO)
    console.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    target = logging.FileHandler(os.path.join(run_dir, "debug.log"), delay=True)
    target.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    trail = logging.handlers.MemoryHandler(capacity=5000, flushLevel=logging.ERROR, target=target)
    log.addHandler(console)
    log.addHandler(trail)
    return log


class PeriodicConv(nn.Module):
    def __init__(self, cin, cout, k=3):
        super().__init__()
        self.pad = k // 2
        self.conv = nn.Conv2d(cin, cout, k)

    def forward(self, x):
        x = F.pad(x, (self.pad, self.pad, 0, 0), mode="circular")
        x = F.pad(x, (0, 0, self.pad, self.pad), mode="replicate")
        return self.conv(x)


class Emulator(nn.Module):
    def __init__(self, n_vars, width=48, depth=4):
        super().__init__()
        self.enc = PeriodicConv(n_vars, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), PeriodicConv(width, width))
            for _ in range(depth))
        self.dec = PeriodicConv(width, n_vars)

    def forward(self, x):
        h = self.enc(x)
        for b in self.blocks:
            h = h + b(h)
        return x + self.dec(h)


def latitude_weights(n_lat, device):
    lat = torch.linspace(-90, 90, n_lat + 2, device=device)[1:-1]
    w = torch.cos(torch.deg2rad(lat))
    return (w / w.mean())[None, None, :, None]


class Reanalysis:
    def __init__(self, n_vars, grid, seed=0):
        g = torch.Generator().manual_seed(seed)
        coarse = torch.randn(64, n_vars, grid[0] // 8, grid[1] // 8, generator=g)
        self.fields = coarse
        self.grid = grid
        self.g = g

    def pairs(self, n, device):
        t = torch.randint(0, 63, (n,), generator=self.g)
        up = lambda f: F.interpolate(f.to(device), size=self.grid, mode="bilinear", align_corners=False)
        return up(self.fields[t]), up(self.fields[t + 1])


def check_finite(log, step, name, value):
    if not torch.isfinite(value).all():
        log.error("step %d: non-finite %s", step, name)
        raise FloatingPointError(name)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n-vars", type=int, default=20)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--run-dir", default=None)
    args = ap.parse_args()

    log = setup_logging(args.run_dir or tempfile.mkdtemp(prefix="nowcast-"))
    device = torch.device("cuda")
    torch.manual_seed(0)
    data = Reanalysis(args.n_vars, (128, 256))
    model = Emulator(args.n_vars).to(device)
    weights = latitude_weights(128, device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    warmup = torch.optim.lr_scheduler.LinearLR(opt, 0.05, total_iters=200)

    log.info("training with %d parameters", sum(p.numel() for p in model.parameters()))
    for step in range(args.steps):
        x, y = data.pairs(args.batch_size, device)
        pred = model(x)
        loss = (weights * (pred - y).pow(2)).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        warmup.step()
        log.debug("step %d pred %s truth %s grad norm %s", step, pred.detach(), y, norm)  # HERE
        check_finite(log, step, "loss", loss.detach())
        if step % 25 == 0:
            log.info("step %d loss %.5f grad %.3f lr %.2e", step, loss.item(), norm.item(),
                     opt.param_groups[0]["lr"])


if __name__ == "__main__":
    main()
