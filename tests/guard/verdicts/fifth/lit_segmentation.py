import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = 21


class Shapes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100_003 + i)
        coarse = torch.randint(0, CLASSES, (1, 1, 8, 8), generator=g).float()
        mask = F.interpolate(coarse, size=128, mode="nearest")[0, 0].long()
        img = torch.stack([mask / CLASSES, (mask % 5) / 5, (mask % 3) / 3])
        return img + 0.1 * torch.randn(3, 128, 128, generator=g), mask


class LitSeg(L.LightningModule):
    def __init__(self, w=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, w, 5, padding=2), nn.ReLU(), nn.Conv2d(w, w, 3, padding=1), nn.ReLU(),
            nn.Conv2d(w, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, CLASSES, 1))
        self.val_outputs = []

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        logits = self.net(x)
        self.log("val_loss", F.cross_entropy(logits, y))
        self.val_outputs.append({"logits": logits, "mask": y})  # HERE

    def on_validation_epoch_end(self):
        inter = torch.zeros(CLASSES, device=self.device)
        union = torch.zeros(CLASSES, device=self.device)
        for o in self.val_outputs[-len(self.trainer.val_dataloaders):]:
            pred = o["logits"].argmax(1)
            for c in range(CLASSES):
                a, b = pred == c, o["mask"] == c
                inter[c] += (a & b).sum()
                union[c] += (a | b).sum()
        self.log("val_miou", (inter / union.clamp(min=1)).mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    L.seed_everything(0)
    trainer = L.Trainer(max_epochs=30, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False)
    trainer.fit(LitSeg(), DataLoader(Shapes(640, 1), batch_size=16, shuffle=True),
                DataLoader(Shapes(480, 2), batch_size=16))
