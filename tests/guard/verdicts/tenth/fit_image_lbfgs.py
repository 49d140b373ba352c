"""Fit one image with a SIREN, full batch, L-BFGS."""
import math

import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, n_in, n_out, w0=30.0, first=False):
        super().__init__()
        self.w0 = w0
        self.lin = nn.Linear(n_in, n_out)
        bound = 1 / n_in if first else math.sqrt(6 / n_in) / w0
        nn.init.uniform_(self.lin.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.w0 * self.lin(x))


def siren(width, depth):
    mods = [Sine(2, width, first=True)]
    mods += [Sine(width, width) for _ in range(depth)]
    mods += [nn.Linear(width, 3)]
    return nn.Sequential(*mods)


def target_image(side):
    t = torch.linspace(-1, 1, side)
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    coords = torch.stack([xx, yy], -1).reshape(-1, 2)
    r = coords.norm(dim=1)
    rgb = torch.stack([torch.sin(12 * r), torch.cos(9 * xx.flatten()) * yy.flatten(),
                       torch.sign(torch.sin(20 * xx * yy)).flatten()], 1)
    return coords, rgb


def psnr(mse):
    return 10 * math.log10(4.0 / mse)


def main(side=96, width=1280, depth=5, rounds=30, device="cuda"):
    torch.manual_seed(0)
    coords, rgb = (t.to(device) for t in target_image(side))
    net = siren(width, depth).to(device)
    n = sum(p.numel() for p in net.parameters())
    print(f"{n / 1e6:.1f}M weights for {side}x{side} pixels")

    opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10,
                            history_size=100,  # HERE
                            tolerance_grad=0, tolerance_change=0,
                            line_search_fn="strong_wolfe")
    last = {}

    def closure():
        opt.zero_grad()
        loss = (net(coords) - rgb).square().mean()
        loss.backward()
        last["mse"] = loss.item()
        return loss

    for k in range(rounds):
        opt.step(closure)
        print(f"round {k:3d}  mse {last['mse']:.5f}  psnr {psnr(last['mse']):.2f} dB", flush=True)


if __name__ == "__main__":
    main()
