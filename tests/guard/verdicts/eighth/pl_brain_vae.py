"""Anomaly-detection autoencoder on brain volumes with a Lightning DataModule."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl


class BrainVolumes(Dataset):
    """Volumes are resampled to an isotropic grid when first requested."""

    def __init__(self, n, size, device):
        self.n, self.size, self.device = n, size, torch.device(device)
        self.raw = torch.rand(16, 1, 24, 24, 24)
        self._resampled = {}

    def __len__(self):
        return self.n

    def _resample(self, i):
        low = self.raw[i % 16].to(self.device)[None] * (0.8 + 0.4 * (i / self.n))
        vol = F.interpolate(low, size=(self.size,) * 3, mode="trilinear", align_corners=False)[0]
        return (vol - vol.mean()) / vol.std()

    def __getitem__(self, i):
        if i not in self._resampled:
            self._resampled[i] = self._resample(i)  # HERE
        return self._resampled[i]


class BrainDataModule(pl.LightningDataModule):
    def __init__(self, n_train, size, batch_size):
        super().__init__()
        self.n_train, self.size, self.batch_size = n_train, size, batch_size

    def setup(self, stage=None):
        self.train_set = BrainVolumes(self.n_train, self.size, "cuda")

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, num_workers=0)


class VolumeVAE(pl.LightningModule):
    def __init__(self, size, base=8, latent=128, lr=1e-3, beta=0.01):
        super().__init__()
        self.save_hyperparameters()
        side = size // 8
        self.side = side
        self.enc = nn.Sequential(
            nn.Conv3d(1, base, 4, 2, 1), nn.LeakyReLU(0.1, True),
            nn.Conv3d(base, 2 * base, 4, 2, 1), nn.LeakyReLU(0.1, True),
            nn.Conv3d(2 * base, 4 * base, 4, 2, 1), nn.LeakyReLU(0.1, True),
            nn.AdaptiveAvgPool3d(4), nn.Flatten())
        self.stats = nn.Linear(4 * base * 64, 2 * latent)
        self.lift = nn.Linear(latent, 4 * base * 64)
        self.dec = nn.Sequential(
            nn.Upsample(size=(side,) * 3),
            nn.ConvTranspose3d(4 * base, 2 * base, 4, 2, 1), nn.LeakyReLU(0.1, True),
            nn.ConvTranspose3d(2 * base, base, 4, 2, 1), nn.LeakyReLU(0.1, True),
            nn.ConvTranspose3d(base, 1, 4, 2, 1))

    def forward(self, x):
        mu, logvar = self.stats(self.enc(x)).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        h = self.lift(z).view(len(x), -1, 4, 4, 4)
        return self.dec(h), mu, logvar

    def training_step(self, batch, batch_idx):
        recon, mu, logvar = self(batch)
        rec = F.mse_loss(recon, batch)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()
        if batch_idx % 10 == 0:
            print(f"[{self.current_epoch}:{batch_idx}] rec {rec.item():.4f} kl {kl.item():.4f}", flush=True)
        return rec + self.hparams.beta * kl

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--volumes", type=int, default=1200)
    ap.add_argument("--size", type=int, default=192)
    ap.add_argument("--batch-size", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=20)
    args = ap.parse_args()
    pl.seed_everything(0)
    trainer = pl.Trainer(max_epochs=args.epochs, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, gradient_clip_val=1.0)
    trainer.fit(VolumeVAE(args.size), datamodule=BrainDataModule(args.volumes, args.size, args.batch_size))
