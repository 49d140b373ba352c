"""Autoencoder for surface inspection; keeps the worst images for a report."""
import heapq

import pytorch_lightning as pl
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Surfaces(Dataset):
    def __init__(self, n=24000, size=224):
        self.n, self.size = n, size
        g = torch.Generator().manual_seed(0)
        self.base = torch.rand(64, 3, size, size, generator=g)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        a = self.base[i % 64]
        b = self.base[(i * 7 + 3) % 64]
        t = (i % 97) / 97
        return a * (1 - t) + b * t


class ConvAE(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(3, c, 4, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 4, 2, 1), nn.ReLU(),
            nn.Conv2d(2 * c, 4 * c, 4, 2, 1), nn.ReLU())
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.ReLU(),
            nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        return self.dec(self.enc(x))


class WorstImages(pl.Callback):
    """Remember the `keep` images with the largest reconstruction error."""

    def __init__(self, keep=384, per_batch=2):
        self.keep, self.per_batch = keep, per_batch
        self.heap = []
        self.counter = 0

    def _push(self, score, image):
        self.counter += 1
        entry = (score, self.counter, image)
        if len(self.heap) < self.keep:
            heapq.heappush(self.heap, entry)
        else:
            heapq.heappushpop(self.heap, entry)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        scores, order = outputs["errors"].topk(self.per_batch)
        for s, i in zip(scores.tolist(), order.tolist()):
            self._push(s, batch[i])  # HERE

    def on_train_epoch_end(self, trainer, pl_module):
        worst = sorted(self.heap, reverse=True)
        print("worst errors:", [round(w[0], 4) for w in worst[:10]])


class Inspection(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.ae = ConvAE()

    def training_step(self, batch, batch_idx):
        recon = self.ae(batch)
        errors = (recon - batch).pow(2).flatten(1).mean(1)
        self.log("mse", errors.mean(), prog_bar=True)
        return {"loss": errors.mean(), "errors": errors.detach()}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    pl.seed_everything(0)
    loader = DataLoader(Surfaces(), batch_size=48, num_workers=6)
    pl.Trainer(accelerator="gpu", devices=1, max_epochs=2, logger=False,
               enable_checkpointing=False, callbacks=[WorstImages()]).fit(Inspection(), loader)
