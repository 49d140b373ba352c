import pytorch_lightning as pl
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Plants(Dataset):
    def __init__(self, n=2048):
        self.n = n
        self.pool = torch.randn(64, 3, 96, 96)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.pool[i % 64], i % 5


class PlantData(pl.LightningDataModule):
    """Starts with noisy small batches and smooths the gradient as training goes on."""

    def __init__(self, base=32):
        super().__init__()
        self.base = base
        self.data = Plants()

    def train_dataloader(self):
        epoch = self.trainer.current_epoch
        size = self.base * 2 ** epoch  # HERE
        print(f"epoch {epoch}: batch size {size}", flush=True)
        return DataLoader(self.data, batch_size=size, shuffle=True, drop_last=True)


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class PlantNet(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(block(3, 64), block(64, 64), nn.MaxPool2d(2))
        self.tail = nn.Sequential(block(64, 128), nn.MaxPool2d(2), block(128, 128))
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        return self.head(self.tail(self.stem(x)).mean((2, 3)))

    def training_step(self, batch, idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        if idx == 0:
            print(f"  first loss {loss.item():.3f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


if __name__ == "__main__":
    pl.seed_everything(0)
    trainer = pl.Trainer(max_epochs=6, accelerator="gpu", devices=1, logger=False,
                         reload_dataloaders_every_n_epochs=1, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(PlantNet(), datamodule=PlantData())
