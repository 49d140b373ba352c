"""Street scene segmentation with Lightning."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

try:
    import lightning as L
except ImportError:
    import pytorch_lightning as L


class Streets(Dataset):
    def __init__(self, n, size=128, classes=20, seed=0):
        self.n, self.size, self.classes, self.seed = n, size, classes, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_000 + i)
        coarse = torch.randint(self.classes, (1, 1, 8, 8), generator=g).float()
        mask = F.interpolate(coarse, size=self.size, mode="nearest")[0, 0].long()
        img = mask[None].float().repeat(3, 1, 1) / self.classes
        return img + 0.1 * torch.randn(3, self.size, self.size, generator=g), mask


def conv(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))


class SegModule(L.LightningModule):
    def __init__(self, classes=20, width=32, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = conv(3, width, 2)
        self.down = nn.Sequential(conv(width, 2 * width, 2), conv(2 * width, 2 * width))
        self.up = conv(3 * width, width)
        self.cls = nn.Conv2d(width, classes, 1)
        self.val_outputs = []

    def forward(self, x):
        s = self.stem(x)
        d = F.interpolate(self.down(s), scale_factor=2, mode="bilinear", align_corners=False)
        h = self.cls(self.up(torch.cat([s, d], 1)))
        return F.interpolate(h, scale_factor=2, mode="bilinear", align_corners=False)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.val_outputs.append({"logits": logits, "target": y})  # HERE

    def on_validation_epoch_end(self):
        c = self.hparams.classes
        conf = torch.zeros(c, c, device=self.device)
        ece = torch.zeros((), device=self.device)
        for out in self.val_outputs:
            prob, pred = out["logits"].softmax(1).max(1)
            hit = (pred == out["target"]).float()
            ece += (prob.mean() - hit.mean()).abs()
            idx = out["target"].flatten() * c + pred.flatten()
            conf += torch.bincount(idx, minlength=c * c).view(c, c)
        inter = conf.diag()
        iou = inter / (conf.sum(0) + conf.sum(1) - inter).clamp(min=1)
        self.log("val_miou", iou.mean(), prog_bar=True)
        self.log("val_ece", ece / len(self.val_outputs))
        print(f"epoch {self.current_epoch}: mIoU {iou.mean().item():.4f}")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=self.trainer.max_epochs)
        return [opt], [sched]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--train-images", type=int, default=320)
    ap.add_argument("--val-images", type=int, default=320)
    args = ap.parse_args()

    L.seed_everything(0)
    train = DataLoader(Streets(args.train_images, seed=1), args.batch_size, shuffle=True, drop_last=True)
    val = DataLoader(Streets(args.val_images, seed=2), args.batch_size)
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="gpu", devices=1, logger=False,
                        enable_checkpointing=False, num_sanity_val_steps=0,
                        enable_progress_bar=False)
    trainer.fit(SegModule(), train, val)


if __name__ == "__main__":
    main()
