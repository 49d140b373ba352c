"""Resume the training of a transformer denoiser (DiT-like) from weights + EMA."""
import argparse
import copy
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


class Latents(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(64, 16, generator=g)


class Denoiser(nn.Module):
    def __init__(self, dim=1024, depth=16):
        super().__init__()
        self.inp = nn.Linear(16, dim)
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        layer = nn.TransformerEncoderLayer(dim, 16, 4 * dim, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 16)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t[:, None])[:, None]
        return self.out(self.body(h))


def previous_run(path):
    """Stand-in for the run on the other cluster."""
    if not os.path.exists(path):
        m = Denoiser()
        smooth = {k: 0.999 * v for k, v in m.state_dict().items()}
        torch.save({"model": m.state_dict(), "ema": smooth, "step": 12000}, path)
    return path


@torch.no_grad()
def ema_update(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.lerp_(p, 1 - decay)


def noise_loss(model, x0):
    t = torch.rand(x0.size(0), device=x0.device)
    noise = torch.randn_like(x0)
    a = torch.cos(t * 1.57)[:, None, None]
    s = torch.sin(t * 1.57)[:, None, None]
    return F.mse_loss(model(a * x0 + s * noise, t), noise)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--decay", type=float, default=0.9995)
    args = ap.parse_args()

    path = previous_run(os.path.join(tempfile.mkdtemp(), "last.pt"))
    accelerator = Accelerator()
    model = Denoiser()
    ema = copy.deepcopy(model).eval().requires_grad_(False).to(accelerator.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Latents(), batch_size=args.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    ckpt = torch.load(path, map_location=accelerator.device)  # HERE
    accelerator.unwrap_model(model).load_state_dict(ckpt["model"])
    ema.load_state_dict(ckpt["ema"])
    accelerator.print(f"resumed at step {ckpt['step']}")

    for i, x0 in enumerate(loader):
        loss = noise_loss(model, x0)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        ema_update(ema, accelerator.unwrap_model(model), args.decay)
        if i % 20 == 0:
            accelerator.print(f"step {ckpt['step'] + i}: {loss.item():.4f}", flush=True)
        if i >= args.steps:
            break


if __name__ == "__main__":
    main()
