"""Road extraction from aerial imagery, PyTorch Lightning."""
from argparse import ArgumentParser

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset
from torchmetrics.classification import BinaryAveragePrecision, BinaryJaccardIndex

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl


class AerialTiles(IterableDataset):
    def __init__(self, batches, batch_size, size, device):
        self.batches, self.batch_size, self.size, self.device = batches, batch_size, size, device

    def __iter__(self):
        for _ in range(self.batches):
            field = torch.rand(self.batch_size, 1, 8, 8, device=self.device)
            field = F.interpolate(field, size=(self.size, self.size), mode="bicubic", align_corners=False)
            mask = ((field * 12).frac() < 0.15).float()
            img = 0.5 * mask + 0.4 * torch.rand(self.batch_size, 3, self.size, self.size, device=self.device)
            yield img, mask


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class RoadSegmenter(pl.LightningModule):
    def __init__(self, width=8, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.d1, self.d2, self.d3 = DoubleConv(3, width), DoubleConv(width, 2 * width), DoubleConv(2 * width, 4 * width)
        self.u2, self.u1 = DoubleConv(6 * width, 2 * width), DoubleConv(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)
        self.train_iou = BinaryJaccardIndex()
        self.train_ap = BinaryAveragePrecision()  # HERE

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(c, scale_factor=2.0), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2.0), a], 1))
        return self.out(y)

    def training_step(self, batch, batch_idx):
        img, mask = batch
        logits = self(img)
        bce = F.binary_cross_entropy_with_logits(logits, mask)
        prob = logits.sigmoid()
        dice = 1 - (2 * (prob * mask).sum() + 1) / (prob.sum() + mask.sum() + 1)
        self.train_iou.update(prob.detach(), mask.long())
        self.train_ap.update(prob.detach(), mask.long())  # HERE
        if batch_idx % 50 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} bce {bce.item():.4f} dice {dice.item():.4f}")
        return bce + dice

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: AP {self.train_ap.compute():.4f} IoU {self.train_iou.compute():.4f}")
        self.train_ap.reset()
        self.train_iou.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
        return {"optimizer": opt, "lr_scheduler": sched}


def main():
    ap = ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--batches", type=int, default=1000)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--size", type=int, default=256)
    args = ap.parse_args()
    pl.seed_everything(3)
    data = AerialTiles(args.batches, args.batch_size, args.size, "cuda")
    trainer = pl.Trainer(max_epochs=args.epochs, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(RoadSegmenter(), DataLoader(data, batch_size=None))


if __name__ == "__main__":
    main()
