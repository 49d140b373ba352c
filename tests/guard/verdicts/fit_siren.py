"""Fit one image with a SIREN (sine activations), all pixels in each step."""
import numpy as np
import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, fan_in, fan_out, omega=30.0, first=False):
        super().__init__()
        self.omega = omega
        self.linear = nn.Linear(fan_in, fan_out)
        bound = 1 / fan_in if first else np.sqrt(6 / fan_in) / omega
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.omega * self.linear(x))


def picture(side):
    yy, xx = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j].astype(np.float32)
    rgb = np.stack([np.sin(9 * xx * yy), np.cos(7 * xx), np.sin(5 * (xx + yy))], -1)
    coords = np.stack([xx, yy], -1)
    return torch.from_numpy(coords.reshape(-1, 2)), torch.from_numpy(rgb.reshape(-1, 3))


def main(side=960, width=256, steps=500):
    torch.manual_seed(0)
    coords, pixels = (t.cuda() for t in picture(side))
    net = nn.Sequential(Sine(2, width, first=True), Sine(width, width), nn.Linear(width, 3)).cuda()
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    for step in range(steps):
        out = net(coords)
        loss = ((out - pixels) ** 2).mean()
        print(f"step {step} psnr {-10 * torch.log10(loss).item():.2f} dB", flush=True)
        opt.zero_grad()
        loss.backward()  # HERE
        opt.step()


if __name__ == "__main__":
    main()
