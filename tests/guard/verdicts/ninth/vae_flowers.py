"""Convolutional VAE on 128 px flowers, with picture panels written once an epoch."""
import argparse
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, latent=64, width=32):
        super().__init__()
        chain = [3, width, 2 * width, 4 * width, 4 * width]
        layers = []
        for cin, cout in zip(chain[:-1], chain[1:]):
            layers += [nn.Conv2d(cin, cout, 4, 2, 1), nn.ReLU()]
        self.encoder = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * 64, 2 * latent))
        layers = [nn.Linear(latent, 4 * width * 64), nn.Unflatten(1, (4 * width, 8, 8))]
        for cin, cout in zip(chain[:0:-1], chain[-2::-1]):
            layers += [nn.ReLU(), nn.ConvTranspose2d(cin, cout, 4, 2, 1)]
        self.decoder = nn.Sequential(*layers, nn.Sigmoid())

    def forward(self, x):
        mean, logvar = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(z), mean, logvar


class Panels:
    """Writing pictures is slow, so it waits until the epoch is over."""

    def __init__(self, folder):
        self.folder = folder
        self.waiting = []

    def later(self, step, images, recon):
        def write():
            worst = (images - recon).square().mean((1, 2, 3)).topk(4).indices
            panel = torch.cat([images[worst], recon[worst]]).detach().mul(255).byte().cpu()
            torch.save(panel, os.path.join(self.folder, f"panel-{step:06d}.pt"))
        self.waiting.append(write)  # HERE

    def flush(self):
        for write in self.waiting[-10:]:
            write()
        self.waiting.clear()


def flowers(count, size, gen):
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle, radius = torch.atan2(y, x), (x ** 2 + y ** 2).sqrt()
    petals = torch.randint(3, 9, (count, 1, 1), generator=gen)
    turn = 2 * math.pi * torch.rand(count, 1, 1, generator=gen)
    mask = (radius < 0.5 + 0.3 * torch.cos(petals * angle + turn)).float()
    colour = torch.rand(count, 3, 1, 1, generator=gen)
    return mask[:, None] * colour


def train(args, folder):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gen = torch.Generator().manual_seed(0)
    model = VAE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    panels = Panels(folder)
    for epoch in range(args.epochs):
        for step in range(args.steps):
            images = flowers(args.batch, 128, gen).to(device)
            recon, mean, logvar = model(images)
            rec = F.mse_loss(recon, images, reduction="sum") / len(images)
            kl = -0.5 * (1 + logvar - mean ** 2 - logvar.exp()).sum(1).mean()
            optimizer.zero_grad()
            (rec + args.beta * kl).backward()
            optimizer.step()
            panels.later(epoch * args.steps + step, images, recon)
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} rec {rec.item():.1f} kl {kl.item():.1f}", flush=True)
        panels.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--beta", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        train(args, folder)


if __name__ == "__main__":
    main()
