"""DCGAN on 64 px sprites. Runs under Lightning, or with a short loop of its own where Lightning is not installed."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

try:
    import lightning as L
except ImportError:
    try:
        import pytorch_lightning as L
    except ImportError:
        L = None

Base = L.LightningModule if L else nn.Module


class Sprites(Dataset):
    def __init__(self, count):
        self.count = count
        self.grid = torch.linspace(-1, 1, 64)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        cx, cy, r = (torch.rand(3, generator=gen) - 0.5).tolist()
        disc = ((self.grid[None] - cx) ** 2 + (self.grid[:, None] - cy) ** 2) < (0.2 + abs(r)) ** 2
        colour = torch.rand(3, 1, 1, generator=gen)
        return disc.float()[None] * colour * 2 - 1


def up(cin, cout):
    return nn.Sequential(nn.ConvTranspose2d(cin, cout, 4, 2, 1), nn.BatchNorm2d(cout), nn.ReLU())


def down(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 4, 2, 1), nn.LeakyReLU(0.2))


class DCGAN(Base):
    def __init__(self, latent=100, width=64):
        super().__init__()
        self.latent = latent
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(latent, width * 8, 4, 1, 0), nn.ReLU(),
            up(width * 8, width * 4), up(width * 4, width * 2), up(width * 2, width),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )
        self.critic = nn.Sequential(
            down(3, width), down(width, width * 2), down(width * 2, width * 4), down(width * 4, width * 8),
            nn.Conv2d(width * 8, 1, 4), nn.Flatten(),
        )
        self.automatic_optimization = False
        self.d_average, self.g_average, self.seen = 0.0, 0.0, 0

    def configure_optimizers(self):
        make = lambda net: torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999))
        return [make(self.generator), make(self.critic)], []

    def get_opts(self):
        return self.optimizers() if L else self.opts

    def back(self, loss, **how):
        self.manual_backward(loss, **how) if L else loss.backward(**how)

    def training_step(self, real, batch_idx):
        opt_g, opt_d = self.get_opts()
        fake = self.generator(torch.randn(len(real), self.latent, 1, 1, device=real.device))

        d_real, d_fake = self.critic(real), self.critic(fake)
        d_loss = F.softplus(-d_real).mean() + F.softplus(d_fake).mean()
        opt_d.zero_grad()
        self.back(d_loss, retain_graph=True)
        opt_d.step()

        g_loss = F.softplus(-self.critic(fake)).mean()
        opt_g.zero_grad()
        self.back(g_loss)
        opt_g.step()

        self.seen += 1
        self.d_average = self.d_average + (d_loss - self.d_average) / self.seen  # HERE
        self.g_average += (g_loss.item() - self.g_average) / self.seen
        if batch_idx % 20 == 0:
            print(f"step {batch_idx} d {self.d_average.item():.3f} g {self.g_average:.3f}", flush=True)


def plain_fit(model, loader, epochs):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device)
    model.opts = model.configure_optimizers()[0]
    for _ in range(epochs):
        for i, batch in enumerate(loader):
            model.training_step(batch.to(device), i)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(5)
    loader = DataLoader(Sprites(args.images), batch_size=args.batch, shuffle=True, drop_last=True)
    model = DCGAN()
    if L:
        L.Trainer(max_epochs=args.epochs, accelerator="auto", devices=1, logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(model, loader)
    else:
        plain_fit(model, loader, args.epochs)


if __name__ == "__main__":
    main()
