"""Audio tagging on log-mel patches; batch size is increased instead of decaying the lr."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl

N_TAGS = 50


class MelPatches(Dataset):
    def __init__(self, n=8192, mels=64, frames=256, bank=256):
        g = torch.Generator().manual_seed(0)
        self.bank = torch.randn(bank, 1, mels, frames, generator=g)
        self.tags = (torch.rand(bank, N_TAGS, generator=g) < 0.05).float()
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        j = i % len(self.bank)
        return self.bank[j].roll(i % 64, -1), self.tags[j]


class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)


class AudioTagger(pl.LightningModule):
    def __init__(self, batch_size=32, grow_every=1, lr=2e-3):
        super().__init__()
        self.batch_size = batch_size
        self.grow_every = grow_every
        self.lr = lr
        self.data = MelPatches()
        self.blocks = nn.Sequential(ConvBlock(1, 32), ConvBlock(32, 64), ConvBlock(64, 128))
        self.head = nn.Linear(128, N_TAGS)

    def forward(self, x):
        h = self.blocks(x)
        return self.head(h.mean((2, 3)) + h.amax((2, 3)))

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True, drop_last=True)

    def training_step(self, batch, _):
        x, y = batch
        lam = torch.distributions.Beta(0.4, 0.4).sample().to(x)
        perm = torch.randperm(x.size(0), device=x.device)
        x, y = lam * x + (1 - lam) * x[perm], lam * y + (1 - lam) * y[perm]
        loss = F.binary_cross_entropy_with_logits(self(x), y)
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} batch_size {self.batch_size}", flush=True)
        if (self.current_epoch + 1) % self.grow_every == 0:
            self.batch_size *= 2  # HERE

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9, nesterov=True)


class GradNorm(pl.Callback):
    def on_before_optimizer_step(self, trainer, module, optimizer):
        if trainer.global_step % 20 == 0:
            total = sum(p.grad.pow(2).sum() for p in module.parameters() if p.grad is not None)
            module.log("grad_norm", total.sqrt())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--batches-per-epoch", type=int, default=15)
    ap.add_argument("--grow-every", type=int, default=1)
    ap.add_argument("--lr", type=float, default=2e-3)
    cfg = ap.parse_args()

    pl.seed_everything(1)
    model = AudioTagger(cfg.batch_size, cfg.grow_every, cfg.lr)
    trainer = pl.Trainer(
        max_epochs=cfg.epochs,
        accelerator="gpu",
        devices=1,
        limit_train_batches=cfg.batches_per_epoch,
        reload_dataloaders_every_n_epochs=1,
        callbacks=[GradNorm()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(model)
