"""Convolutional VAE on 64x64 sprites."""
import argparse

import torch
from torch import nn, optim
from torch.nn import functional as F


def sprites(n, seed):
    g = torch.Generator().manual_seed(seed)
    low = torch.rand(n, 3, 8, 8, generator=g)
    return F.interpolate(low, size=64, mode="nearest")


class VAE(nn.Module):
    def __init__(self, z=64):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.ReLU(), nn.Flatten())
        self.mu = nn.Linear(128 * 64, z)
        self.logvar = nn.Linear(128 * 64, z)
        self.up = nn.Linear(z, 128 * 64)
        self.dec = nn.Sequential(
            nn.Unflatten(1, (128, 8, 8)),
            nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.ConvTranspose2d(32, 3, 4, 2, 1))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(self.up(z)), mu, logvar


def elbo(recon, x, mu, logvar):
    bce = F.binary_cross_entropy_with_logits(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def train(epoch, model, data, opt, args):
    model.train()
    total = 0.0
    for i in range(0, len(data), args.batch_size):
        x = data[i:i + args.batch_size].to(args.device)
        loss = elbo(*(lambda r: (r[0], x, r[1], r[2]))(model(x)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"====> epoch {epoch} train loss {total / len(data):.2f}")


def test(epoch, model, data, args):
    model.eval()
    test_loss = 0
    for i in range(0, len(data), args.batch_size):
        x = data[i:i + args.batch_size].to(args.device)
        recon, mu, logvar = model(x)  # HERE
        test_loss += elbo(recon, x, mu, logvar)  # HERE
        if (i // args.batch_size) % 10 == 0:
            print(f"  test {i}/{len(data)}", flush=True)
    print(f"====> epoch {epoch} test loss {test_loss.item() / len(data):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--n-train", type=int, default=6400)
    parser.add_argument("--n-test", type=int, default=16000)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = VAE().to(args.device)
    opt = optim.Adam(model.parameters(), lr=1e-3)
    train_x, test_x = sprites(args.n_train, 0), sprites(args.n_test, 1)
    for epoch in range(1, args.epochs + 1):
        train(epoch, model, train_x, opt, args)
        test(epoch, model, test_x, args)
