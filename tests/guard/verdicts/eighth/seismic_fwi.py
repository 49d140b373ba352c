"""Acoustic full-waveform inversion by automatic differentiation (2-D, constant density)."""
import argparse

import numpy as np
import torch


def ricker(freq, nt, dt):
    t = np.arange(nt) * dt - 1.2 / freq
    a = (np.pi * freq * t) ** 2
    return (1 - 2 * a) * np.exp(-a)


def sponge(nz, nx, width, strength=0.015):
    z = np.arange(nz)[:, None]
    x = np.arange(nx)[None, :]
    dist = np.minimum(np.minimum(z, nz - 1 - z), np.minimum(x, nx - 1 - x))
    return np.exp(-(strength * np.clip(width - dist, 0, None)) ** 2)


class WaveSolver:
    def __init__(self, nz, nx, dx, dt, nt, freq, shots, device):
        self.nz, self.nx, self.dx, self.dt, self.nt = nz, nx, dx, dt, nt
        self.device = device
        self.wavelet = [float(v) for v in ricker(freq, nt, dt)]
        self.damp = torch.from_numpy(sponge(nz, nx, 40)).to(device)  # HERE
        sx = torch.linspace(50, nx - 50, shots, device=device).long()
        self.src = torch.zeros(shots, nz, nx, device=device)
        self.src[torch.arange(shots, device=device), 45, sx] = 1.0
        self.rec_x = torch.arange(45, nx - 45, 4, device=device)

    def laplacian(self, u):
        up, down = torch.roll(u, 1, 1), torch.roll(u, -1, 1)
        left, right = torch.roll(u, 1, 2), torch.roll(u, -1, 2)
        return (up + down + left + right - 4 * u) / self.dx ** 2

    def forward(self, velocity):
        shots = self.src.shape[0]
        prev = torch.zeros(shots, self.nz, self.nx, device=self.device)
        cur = torch.zeros_like(prev)
        c2 = (velocity * self.dt) ** 2
        traces = []
        for it in range(self.nt):
            nxt = 2 * cur - prev + c2 * self.laplacian(cur)
            nxt = (nxt + self.src * self.wavelet[it]) * self.damp  # HERE
            prev, cur = cur * self.damp, nxt
            traces.append(cur[:, 45, self.rec_x])
        return torch.stack(traces, dim=1)


def layered_model(nz, nx, device):
    v = torch.full((nz, nx), 1800.0, device=device)
    v[nz // 3:] = 2300.0
    v[2 * nz // 3:] = 2900.0
    zz, xx = torch.meshgrid(torch.arange(nz, device=device), torch.arange(nx, device=device), indexing="ij")
    lens = ((zz - nz // 2) ** 2 + (xx - nx // 2) ** 2) < 40 ** 2
    v[lens] = 2600.0
    return v


def smooth(v, k=61):
    w = torch.ones(1, 1, k, k, device=v.device) / k ** 2
    p = torch.nn.functional.pad(v[None, None], (k // 2,) * 4, mode="replicate")
    return torch.nn.functional.conv2d(p, w)[0, 0]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nz", type=int, default=512)
    ap.add_argument("--nx", type=int, default=512)
    ap.add_argument("--nt", type=int, default=200)
    ap.add_argument("--shots", type=int, default=8)
    ap.add_argument("--iters", type=int, default=25)
    ap.add_argument("--lr", type=float, default=12.0)
    args = ap.parse_args()
    device = torch.device("cuda")

    solver = WaveSolver(args.nz, args.nx, dx=10.0, dt=1.2e-3, nt=args.nt, freq=9.0,
                        shots=args.shots, device=device)
    true_v = layered_model(args.nz, args.nx, device)
    with torch.no_grad():
        observed = solver.forward(true_v)
    print("observed data", tuple(observed.shape), "max amplitude", observed.abs().max().item())

    velocity = smooth(true_v).clone().requires_grad_(True)
    opt = torch.optim.Adam([velocity], lr=args.lr)
    for it in range(args.iters):
        opt.zero_grad()
        misfit = (solver.forward(velocity) - observed).pow(2).sum()
        misfit.backward()
        velocity.grad[:48] = 0
        opt.step()
        with torch.no_grad():
            velocity.clamp_(1500.0, 3500.0)
        err = (velocity - true_v).abs().mean().item()
        print(f"iter {it:02d} misfit {misfit.item():.4e} model error {err:.1f} m/s")


if __name__ == "__main__":
    main()
