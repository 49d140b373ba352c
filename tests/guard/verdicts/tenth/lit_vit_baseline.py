"""ViT-S baseline for the plankton images.

usage: python lit_vit_baseline.py [--arch vit_small_patch16_224] [--batch-size N]
"""
import argparse

import pytorch_lightning as pl
import timm
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Plankton(Dataset):
    classes = 38

    def __init__(self, n):
        self.n = n
        self.base = torch.randn(64, 3, 224, 224)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        label = i % self.classes
        return self.base[i % 64] + 0.1 * label, label


class Data(pl.LightningDataModule):
    def __init__(self, batch_size, workers):
        super().__init__()
        self.batch_size = batch_size
        self.workers = workers

    def setup(self, stage):
        self.train = Plankton(6000)
        self.val = Plankton(600)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True,
                          num_workers=self.workers, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val, self.batch_size, num_workers=self.workers)


class Classifier(pl.LightningModule):
    def __init__(self, arch, lr):
        super().__init__()
        self.net = timm.create_model(arch, pretrained=False, num_classes=Plankton.classes)
        self.lr = lr

    def training_step(self, batch, i):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y, label_smoothing=0.1)
        print(f"  train batch {i} loss {loss.item():.3f}", flush=True)
        return loss

    def validation_step(self, batch, i):
        x, y = batch
        self.log("val_acc", (self.net(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.05)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
        return [opt], [sched]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--arch", default="vit_small_patch16_224")
    ap.add_argument("--batch-size", type=int, default=256)  # HERE
    ap.add_argument("--workers", type=int, default=6)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--epochs", type=int, default=1)
    a = ap.parse_args()
    pl.seed_everything(42, workers=True)
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=a.epochs, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         num_sanity_val_steps=0)
    trainer.fit(Classifier(a.arch, a.lr), Data(a.batch_size, a.workers))
    print(trainer.callback_metrics)
