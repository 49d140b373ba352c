"""Road segmentation on aerial tiles, Lightning + torchmetrics."""
import argparse

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryJaccardIndex


class Tiles(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        img = torch.rand(3, self.size, self.size, generator=g)
        mask = (img.mean(0) > 0.52).long()
        return img, mask


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o),
                         nn.ReLU(inplace=True))


class TinyUNet(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.d1, self.d2, self.d3 = block(3, ch), block(ch, 2 * ch), block(2 * ch, 4 * ch)
        self.u2, self.u1 = block(6 * ch, 2 * ch), block(3 * ch, ch)
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.u1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a).squeeze(1)


class RoadModule(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.save_hyperparameters()
        self.net = TinyUNet()
        self.metrics = MetricCollection({
            "iou": BinaryJaccardIndex(),
            "auroc": BinaryAUROC(),  # HERE
        }, prefix="train/", compute_groups=False)

    def training_step(self, batch, batch_idx):
        img, mask = batch
        logits = self.net(img)
        loss = F.binary_cross_entropy_with_logits(logits, mask.float())
        self.metrics.update(torch.sigmoid(logits.detach()), mask)
        self.log("loss", loss, prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        self.log_dict(self.metrics.compute())
        self.metrics.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--size", type=int, default=384)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    L.seed_everything(1)
    loader = DataLoader(Tiles(4000, args.size), batch_size=args.batch, num_workers=6)
    trainer = L.Trainer(accelerator="gpu", devices=1, max_epochs=3, logger=False,
                        enable_checkpointing=False, enable_model_summary=False)
    trainer.fit(RoadModule(args.lr), loader)
