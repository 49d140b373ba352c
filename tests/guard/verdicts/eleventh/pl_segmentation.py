"""Binary lesion segmentation with a tiny conv net, pixel-wise AUROC on validation."""
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import BinaryAUROC


class Lesions(Dataset):
    def __init__(self, n, size=256):
        torch.manual_seed(n)
        self.n = n
        self.images = torch.randn(64, 1, size, size)
        self.masks = (self.images[:, 0] > 1.2).long()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.images[i % 64], self.masks[i % 64]


class SegNet(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
            nn.Conv2d(8, 1, 1),
        )
        self.loss = nn.BCEWithLogitsLoss()
        self.val_auroc = BinaryAUROC()  # HERE

    def training_step(self, batch, idx):
        x, y = batch
        loss = self.loss(self.net(x).squeeze(1), y.float())
        if idx % 10 == 0:
            print(f"train {idx}: {loss.item():.4f}", flush=True)
        return loss

    def validation_step(self, batch, idx):
        x, y = batch
        prob = self.net(x).squeeze(1).sigmoid()
        self.val_auroc.update(prob, y)
        if idx % 20 == 0:
            print(f"val {idx}", flush=True)

    def on_validation_epoch_end(self):
        print(f"val AUROC {self.val_auroc.compute().item():.4f}")
        self.val_auroc.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main():
    train = DataLoader(Lesions(16 * 30), batch_size=16, shuffle=True)
    val = DataLoader(Lesions(32 * 170), batch_size=32)
    trainer = pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False,
                         num_sanity_val_steps=0)
    trainer.fit(SegNet(), train, val)


if __name__ == "__main__":
    main()
