"""Binary segmentation of cracks in concrete, Lightning + torchmetrics."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import pytorch_lightning as pl
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import BinaryAUROC, BinaryJaccardIndex


class SyntheticCracks(Dataset):
    def __init__(self, n, size=512):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(idx)
        img = torch.rand(1, self.size, self.size, generator=g)
        mask = torch.zeros(self.size, self.size)
        row = int(torch.randint(8, self.size - 8, (1,), generator=g))
        mask[row - 2:row + 2] = 1
        img[0, row - 2:row + 2] *= 0.4
        return img, mask


def block(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
                         nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class CrackNet(pl.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.down = nn.Sequential(block(1, 16, 2), block(16, 32, 2), block(32, 64, 2))
        self.head = nn.Conv2d(64, 1, 1)
        self.val_iou = BinaryJaccardIndex()
        self.val_auc = BinaryAUROC()  # HERE

    def forward(self, x):
        z = self.head(self.down(x))
        return F.interpolate(z, scale_factor=8, mode="bilinear").squeeze(1)

    def training_step(self, batch, batch_idx):
        img, mask = batch
        loss = F.binary_cross_entropy_with_logits(self(img), mask)
        if batch_idx % 10 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}")
        return loss

    def validation_step(self, batch, batch_idx):
        img, mask = batch
        prob = self(img).sigmoid()
        self.val_iou.update(prob, mask.int())
        self.val_auc.update(prob, mask.int())  # HERE

    def on_validation_epoch_end(self):
        print("val IoU %.4f" % self.val_iou.compute().item(),
              "AUC %.4f" % self.val_auc.compute().item())
        self.val_iou.reset()
        self.val_auc.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main():
    pl.seed_everything(5)
    loaders = dict(batch_size=16, num_workers=6)
    train = DataLoader(SyntheticCracks(480), shuffle=True, **loaders)
    val = DataLoader(SyntheticCracks(2400), **loaders)
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         num_sanity_val_steps=0)
    trainer.fit(CrackNet(), train, val)


if __name__ == "__main__":
    main()
